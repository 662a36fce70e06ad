"""What a person sees on a terminal, and that it is left as it was."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from ramet.v1 import event_pb2, session_pb2, worktree_pb2

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


def test_a_live_table_that_does_not_fit_shows_what_needs_a_person_and_counts_the_rest(world: World) -> None:
    for number in range(9):
        world.state.session(f"idle{number}").create_time.seconds += number
    for number in range(3):
        world.state.session(f"works{number}", state=session_pb2.SESSION_STATE_WORKING)
    world.state.session("asks", state=session_pb2.SESSION_STATE_WAITING)
    world.state.session("broke", state=session_pb2.SESSION_STATE_FAILED)
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
        assert terminal.lines[-1] == "rametctl watch fix"


def test_new_on_a_terminal_without_a_prompt_does_not_wait_for_input(world: World) -> None:
    with world.terminal("new", "--name", "later") as terminal:
        assert terminal.ends() == 0
        assert "rametctl send later PROMPT" in terminal.lines[-1]


def test_what_takes_longer_than_a_second_shows_that_it_goes_on(world: World) -> None:
    world.state.session("fix")
    with world.terminal("wait", "fix") as terminal:
        terminal.shows("waiting …")
        terminal.interrupt()
        assert terminal.ends() == 130
        assert not terminal.screen.cursor.hidden


def test_json_on_a_terminal_is_json_alone(world: World) -> None:
    fill(world)
    with world.terminal("ls", "--json", columns=200) as terminal:
        assert terminal.ends() == 0
        assert terminal.lines[0].startswith('[{"id"')
        assert b"\x1b[" not in terminal.raw
