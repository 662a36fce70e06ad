"""Output on a terminal, and the terminal's state afterwards."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from ramet.v1 import attention_pb2, daemon_pb2, event_pb2, session_pb2, worktree_pb2

from tests.support.client import World
from tests.support.client import world as make_world
from tests.support.eventually import eventually_sync


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with make_world(tmp_path) as made:
        yield made


def fill(world: World) -> session_pb2.Session:
    session = world.state.session(
        "fix-the-login-form-of-the-shop", state=session_pb2.SESSION_STATE_WAITING, turns=12, cost_usd=3.456,
        state_reason="Bash: rm -rf build && make all install test check",
    )  # fmt: skip
    world.state.session("docs", state=session_pb2.SESSION_STATE_WORKING)
    return session


@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (200, 50), (40, 10)])
def test_the_table_fits_every_screen(world: World, columns: int, rows: int) -> None:
    fill(world)
    with world.terminal("ls", columns=columns, rows=rows) as terminal:
        assert terminal.ends() == 0
        shown = terminal.lines
    assert len(shown) == 3
    assert shown[0].split()[:2] == ["NAME", "STATE"]
    assert shown[1].startswith("fix-the-login-form-of-the-shop" if columns == 200 else "fix-the")
    assert "waiting" in shown[1]
    assert ("check" in shown[1]) == (columns == 200)


def test_colour_is_for_terminals_without_no_color(world: World) -> None:
    fill(world)
    with world.terminal("ls") as coloured:
        coloured.ends()
    with world.terminal("ls", env={"NO_COLOR": "1"}) as plain:
        plain.ends()
    assert b"\x1b[" in coloured.raw
    assert b"\x1b[" not in plain.raw
    assert coloured.lines == plain.lines


def test_a_long_line_of_a_transcript_is_wrapped_and_controls_nothing(world: World) -> None:
    session = fill(world)
    text = "word " * 40 + "\x1b[2J\x1b]0;title\x07end"
    block = event_pb2.ContentBlock(text=text)
    world.state.event(session, assistant_message=event_pb2.AssistantMessage(blocks=[block]))
    with world.terminal("watch", session.name) as terminal:
        terminal.shows("␛[2J␛]0;title␇end")
        terminal.interrupt()
        assert terminal.ends() == 130
        assert b"\x1b[2J" not in terminal.raw
        assert b"\x1b]0" not in terminal.raw
        assert terminal.lines[0].startswith("● word word")
        assert terminal.lines[1].startswith("  word word")


def test_the_title_of_a_watch_counts_what_waits_over_reconnections_and_new_logs(world: World) -> None:
    fix, other = world.state.session("fix"), world.state.session("other")
    world.state.request(fix)
    world.state.request(other)

    def opens(session: session_pb2.Session) -> None:
        world.state.event(
            session, request_opened=event_pb2.RequestOpened(request=world.state.request(session, tool="Bash"))
        )

    with world.terminal("watch", "fix") as terminal:
        terminal.writes("\x1b]2;(1) ramet\x1b")
        eventually_sync(lambda: world.state.called("WatchEvents"))
        assert sorted(call.method for call in world.state.calls) == [
            "GetConfig", "GetSession", "ListEvents", "WatchEvents"
        ]  # fmt: skip
        opens(other)
        opens(fix)
        terminal.writes("\x1b]2;(2) ramet\x1b")
        world.daemon.stop()
        opens(fix)
        world.daemon.start()
        terminal.writes("\x1b]2;(3) ramet\x1b")
        world.daemon.stop()
        world.state.epoch, fix.attention, fix.last_seq = "another", 1, 0
        world.state.events.clear()
        opens(fix)
        world.daemon.start()
        terminal.writes("\x1b]2;(2) ramet\x1b")
        fix.attention = 0
        world.state.event(fix, request_closed=event_pb2.RequestClosed())
        terminal.writes("\x1b]2;ramet\x1b")


def test_a_live_table_is_redrawn_in_place_and_gives_the_cursor_back(world: World) -> None:
    session = fill(world)
    with world.terminal("ls", "--watch") as terminal:
        terminal.shows("waiting")
        eventually_sync(lambda: world.state.called("WatchEvents"))
        session.state = session_pb2.SESSION_STATE_IDLE
        world.state.event(session, state_changed=event_pb2.StateChanged(new_state=session.state))
        terminal.shows("idle")
        assert sum("NAME" in line for line in terminal.lines) == 1
        terminal.interrupt()
        assert terminal.ends() == 130
        assert not terminal.screen.cursor.hidden
        assert b"Traceback" not in terminal.raw


def test_a_live_table_that_does_not_fit_shows_what_needs_you_and_counts_the_rest(world: World) -> None:
    for number in range(9):
        world.state.session(f"idle{number}").create_time.seconds += number
    for number in range(3):
        world.state.session(f"works{number}", state=session_pb2.SESSION_STATE_WORKING).create_time.seconds += 9
    world.state.session("asks", state=session_pb2.SESSION_STATE_WAITING).create_time.seconds += 10
    world.state.session("broke", state=session_pb2.SESSION_STATE_FAILED).create_time.seconds += 10
    with world.terminal("ls", "--watch", rows=10) as terminal:
        terminal.shows("… 7 more: 7 idle")
        assert [line.split()[0] for line in terminal.lines[1:-1]] == [
            "asks", "broke", "works0", "works1", "works2", "idle8", "idle7",
        ]  # fmt: skip
    with world.terminal("ls", "--watch", rows=20) as terminal:
        terminal.shows("idle0")
        assert "more" not in terminal.lines[-1]
    with world.terminal("ls", "--watch", "--tree", rows=10) as terminal:
        terminal.shows("… 7 more: 1 waiting, 1 failed, 3 working, 2 idle")


def test_a_live_table_gives_the_cursor_back_on_sigterm_too(world: World) -> None:
    fill(world)
    with world.terminal("ls", "--watch") as terminal:
        terminal.shows("waiting")
        terminal.process.terminate()
        assert terminal.ends() == 143
        assert not terminal.screen.cursor.hidden


def test_a_diff_is_coloured_and_paged(world: World) -> None:
    world.state.session("fix")
    world.state.diff = worktree_pb2.GetDiffResponse(patch=b"--- a/x\n+++ b/x\n@@ -1 +1 @@\n-old\n+new \x1b[5m\n")
    pager = world.home / "pager"
    pager.write_text('#!/bin/sh\necho "paged"; exec cat\n')
    pager.chmod(0o700)
    with world.terminal("diff", "fix", env={"PAGER": str(pager)}) as terminal:
        assert terminal.ends() == 0
        assert terminal.lines == ["paged", "--- a/x", "+++ b/x", "@@ -1 +1 @@", "-old", "+new ␛[5m"]
        assert b"\x1b[31m-old\x1b[0m" in terminal.raw
    with world.terminal("diff", "fix", env={"PAGER": "/nowhere/less"}) as terminal:
        assert terminal.ends() == 0
        assert terminal.lines[0] == "--- a/x"


def test_a_pager_that_is_left_early_is_no_error(world: World) -> None:
    world.state.session("fix")
    world.state.diff = worktree_pb2.GetDiffResponse(patch=b"+line\n" * 200_000)
    with world.terminal("diff", "fix", env={"PAGER": "head -n 1"}) as terminal:
        assert terminal.ends() == 0
        assert terminal.lines == ["+line"]


def test_new_hints_at_what_comes_next(world: World) -> None:
    with world.terminal("new", "do it", "--name", "fix") as terminal:
        assert terminal.ends() == 0
        assert terminal.lines[-1] == "to follow it: rametctl watch fix"


def test_an_idle_session_on_a_terminal_asks_for_no_prompt(world: World) -> None:
    with world.terminal("new", "--idle", "--name", "later") as terminal:
        assert terminal.ends() == 0
        assert "rametctl send later PROMPT" in terminal.lines[-1]


def test_work_of_more_than_a_second_shows_progress(world: World) -> None:
    world.state.session("fix")
    with world.terminal("wait", "fix") as terminal:
        terminal.shows("working …")
        terminal.interrupt()
        assert terminal.ends() == 130
        assert not terminal.screen.cursor.hidden


def test_json_on_a_terminal_is_json_alone(world: World) -> None:
    fill(world)
    with world.terminal("ls", "--json", columns=200) as terminal:
        assert terminal.ends() == 0
        assert terminal.lines[0].startswith('[{"id"')
        assert b"\x1b[" not in terminal.raw


def test_a_watch_shows_words_as_they_come_and_leaves_a_clean_line(world: World) -> None:
    session = fill(world)
    world.state.event(session, turn_started=event_pb2.TurnStarted(cwd="/tree"))
    with world.terminal("watch", session.name) as terminal:
        terminal.shows("interrupt: rametctl interrupt fix")
        for word in ("one ", "two ", "three"):
            world.state.event(session, partial=event_pb2.Partial(text=word))
        terminal.shows("● one two three")
        block = event_pb2.ContentBlock(text="one **two** three four")
        world.state.event(session, assistant_message=event_pb2.AssistantMessage(blocks=[block]))
        terminal.shows("● one two three four")
        assert sum("one two" in line for line in terminal.lines) == 1, "the message replaces the streamed words"
        terminal.interrupt()
        assert terminal.ends() == 130
        assert terminal.screen.cursor.x == 0
        assert not any("interrupt" in line or "^C" in line for line in terminal.lines)


def test_a_watch_shows_the_last_lines_of_a_running_command(world: World, tmp_path: Path) -> None:
    session = fill(world)
    output = tmp_path / "output"
    output.write_text("".join(f"line {number}\n" for number in range(100)))
    call = event_pb2.ToolCall(tool="Bash", tool_use_id="t1", input_json='{"command": "make"}')
    said = event_pb2.AssistantMessage(blocks=[event_pb2.ContentBlock(tool_call=call)])
    world.state.event(session, assistant_message=said)
    task = event_pb2.BackgroundTask(
        task_id="b1", status="started", foreground=True, tool_use_id="t1", output_file=str(output)
    )
    with world.terminal("watch", session.name) as terminal:
        world.state.event(session, background_task=task)
        terminal.shows("line 99")
        assert not any("line 94" in line or "background" in line for line in terminal.lines)
        output.unlink()
        output.symlink_to("/dev/zero")
        result = event_pb2.ToolResult(tool_use_id="t1", text="made")
        world.state.event(session, user_message=event_pb2.UserMessage(results=[result]))
        terminal.shows("  made")
        terminal.interrupt()
        assert terminal.ends() == 130


def test_a_request_is_printed_once_and_its_decision_below_it(world: World) -> None:
    session = fill(world)
    call = event_pb2.ToolCall(tool="Bash", tool_use_id="t1", input_json='{"command": "make"}')
    said = event_pb2.AssistantMessage(blocks=[event_pb2.ContentBlock(tool_call=call)])
    asked = attention_pb2.AttentionRequest(
        id="r1234567", session_id=session.id, kind=attention_pb2.ATTENTION_KIND_PERMISSION, tool="Bash",
        input_json='{"command": "make"}', state=attention_pb2.ATTENTION_STATE_OPEN, tool_use_id="t1",
    )  # fmt: skip
    with world.terminal("watch", session.name) as terminal:
        world.state.event(session, assistant_message=said)
        world.state.event(session, request_opened=event_pb2.RequestOpened(request=asked))
        terminal.shows("→ rametctl approve r1234567")
        asked.state, asked.answered_by = attention_pb2.ATTENTION_STATE_ANSWERED, "owner"
        asked.resolution.approve.SetInParent()
        world.state.event(session, request_closed=event_pb2.RequestClosed(request=asked))
        terminal.shows("✓ approved by you")
        result = event_pb2.ToolResult(tool_use_id="t1", text="made")
        world.state.event(session, user_message=event_pb2.UserMessage(results=[result]))
        terminal.shows("  made")
        terminal.interrupt()
        assert terminal.ends() == 130
        shown = [line.rstrip() for line in terminal.lines if line.strip()]
        assert shown[-5:] == [
            "▸ Bash make", "  ? waits for you", "  → rametctl approve r1234567   or: rametctl deny r1234567 -m WHY",
            "  ✓ approved by you", "  made",
        ]  # fmt: skip


def test_a_conversation_is_read_in_the_pager(world: World) -> None:
    session = fill(world)
    block = event_pb2.ContentBlock(text="a **bold** word")
    world.state.event(session, assistant_message=event_pb2.AssistantMessage(blocks=[block]))
    with world.terminal("logs", session.name, env={"PAGER": "sed s/^/paged:/"}) as terminal:
        assert terminal.ends() == 0
        assert any(line.startswith("paged:● a bold word") for line in terminal.lines)


def test_a_watch_in_a_terminal_that_becomes_narrower_keeps_what_was_printed(world: World) -> None:
    session = fill(world)
    world.state.event(session, warning=event_pb2.Warning(message="printed before"))
    world.state.event(session, turn_started=event_pb2.TurnStarted(cwd="/tree"))
    with world.terminal("watch", session.name, columns=100, env={"XTERM_VERSION": "XTerm(390)"}) as terminal:
        terminal.shows("Ctrl-C leaves")
        terminal.resize(40, 24)
        world.state.event(session, warning=event_pb2.Warning(message="printed after"))
        terminal.shows("printed after")
        assert [line for line in terminal.lines if line.startswith("warning")] == [
            "warning: printed before", "warning: printed after",
        ]  # fmt: skip
        terminal.interrupt()
        assert terminal.ends() == 130


@pytest.mark.parametrize(("setting", "said"), [("auto", b"\x1b]99;i=ramet:d=0;docs needs you\x1b\\"), ("off", b"")])
def test_a_watch_notifies_of_requests_and_counts_them_in_the_title(world: World, setting: str, said: bytes) -> None:
    session = fill(world)
    docs = next(each for each in world.state.sessions.values() if each.name == "docs")
    world.state.request(session)
    world.state.settings.append(daemon_pb2.Setting(key="notify.terminal", value_json=f'"{setting}"'))
    with world.terminal("watch", env={"TERM": "xterm-kitty"}) as terminal:
        terminal.shows("Ctrl-C leaves")
        request = world.state.request(docs)
        world.state.event(docs, request_opened=event_pb2.RequestOpened(request=request))
        terminal.shows("permission")
        docs.attention = 0
        world.state.event(docs, request_closed=event_pb2.RequestClosed(request=request))
        world.state.event(docs, warning=event_pb2.Warning(message="that is all"))
        terminal.shows("that is all")
        terminal.interrupt()
        assert terminal.ends() == 130
    titles = terminal.raw.split(b"\x1b]2;")[1:]
    assert [title.split(b"\x1b")[0] for title in titles] == ([b"(1) ramet", b"(2) ramet", b"(1) ramet"] if said else [])
    assert (b"\x1b]99;" in terminal.raw, said in terminal.raw) == (bool(said), True)
    assert (b"\x1b[22;2t" in terminal.raw) == (b"\x1b[23;2t" in terminal.raw) == bool(said)


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["inbox", "--watch"], "nothing waits for you yet"),
        (["diff", "docs", "--watch"], "no changes yet"),
        (["events", "docs", "-f"], "the docs are written"),
    ],
)
def test_a_verb_that_follows_shows_something_at_once_and_ctrl_c_leaves_no_echo(
    world: World, words: list[str], shown: str
) -> None:
    fill(world)
    text = event_pb2.ContentBlock(text="the docs are written")
    docs = next(each for each in world.state.sessions.values() if each.name == "docs")
    world.state.event(docs, assistant_message=event_pb2.AssistantMessage(blocks=[text]))
    with world.terminal(*words) as terminal:
        terminal.shows(shown)
        terminal.interrupt()
        assert terminal.ends() == 130
        assert not any("^C" in line for line in terminal.lines)


def test_a_followed_inbox_begins_with_one_line_for_each_request(world: World) -> None:
    session = fill(world)
    for number in range(12):
        world.state.request(session, tool="Bash", input_json=f'{{"command": "make {number}"}}')
    with world.terminal("inbox", "--watch") as terminal:
        terminal.shows("in full: inbox NAME")
        assert sum("Bash: make" in line for line in terminal.lines) == 12
        terminal.interrupt()
        terminal.ends()


def test_an_idle_session_with_an_open_request_shows_it_in_the_list(world: World) -> None:
    world.state.session("held", state=session_pb2.SESSION_STATE_IDLE, attention=1, now="done")
    assert "a request waits for you" in world.run("ls").out


def test_a_followed_diff_names_an_operation_under_way_once(world: World) -> None:
    fill(world)
    world.state.diff = worktree_pb2.GetDiffResponse(warnings=["a rebase is under way in its worktree"])
    with world.terminal("diff", "docs", "--watch") as terminal:
        terminal.shows("warning: a rebase is under way in its worktree")
        terminal.interrupt()
        terminal.ends()
        assert sum("a rebase" in line for line in terminal.lines) == 1
