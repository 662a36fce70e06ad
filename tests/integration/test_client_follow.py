"""Verbs that follow events, over restarts and failures of the daemon."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ramet.v1 import attention_pb2, event_pb2, session_pb2
from rametctl.connection import channel as connection
from rametctl.view import transcript

from tests.support.client import World
from tests.support.client import world as make_world
from tests.support.eventually import eventually_sync
from tests.support.fake_state import Refusal

GONE = "rametctl: the daemon stopped before it answered; waiting for another: rametctl daemon start\n"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with make_world(tmp_path) as made:
        yield made


@pytest.fixture
def reader(world: World) -> Iterator["Reader"]:
    made = Reader(world)
    yield made
    made.end()


class Reader:
    """A running command, and the lines it prints."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._process: subprocess.Popen[str] | None = None

    def start(self, *args: str, **env: str) -> None:
        self._process = self._world.popen(*args, env=env)

    @property
    def process(self) -> "subprocess.Popen[str]":
        assert self._process is not None
        return self._process

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip("\n")

    def json(self) -> Any:
        return json.loads(self.line())

    def interrupt(self) -> tuple[int, str]:
        """Press Ctrl-C; return exit code and standard error."""
        self.process.send_signal(signal.SIGINT)
        _, err = self.process.communicate(timeout=20)
        return self.process.returncode, err

    def end(self) -> None:
        if self._process is not None:
            self._process.kill()
            # The end of the block closes the pipes and waits.
            with self._process:
                pass


def warn(world: World, text: str, session: session_pb2.Session | None = None) -> None:
    world.state.event(session, warning=event_pb2.Warning(message=text))


def watching(world: World, times: int = 1) -> None:
    """Return once the command watches."""
    eventually_sync(lambda: len(world.state.called("WatchEvents")) >= times)


def test_watch_begins_with_the_running_turn_and_continues(world: World, reader: Reader) -> None:
    session = world.state.session("fix")
    warn(world, "of an earlier turn", session)
    world.state.event(session, turn_ended=event_pb2.TurnEnded())
    for number, text in enumerate(("fix it", "and later this")):
        prompt = session_pb2.Prompt(id=f"p{number}", text=text, source="owner")
        world.state.event(session, prompt_queued=event_pb2.PromptQueued(prompt=prompt))
        if number == 0:
            world.state.event(session, prompt_received=event_pb2.PromptReceived(prompt_id="p0"))
    asked = attention_pb2.AttentionRequest(
        id="r1234567", session_id=session.id, kind=attention_pb2.ATTENTION_KIND_QUESTION,
        input_json='{"question": "Which?"}', state=attention_pb2.ATTENTION_STATE_OPEN,
    )  # fmt: skip
    world.state.event(session, request_opened=event_pb2.RequestOpened(request=asked))
    reader.start("watch", "fix")
    assert [reader.line() for _ in range(4)] == [
        "› fix it", "? question", "  Which?", "  → rametctl answer r1234567 1",
    ]  # fmt: skip
    watching(world)
    world.state.event(
        session,
        state_changed=event_pb2.StateChanged(
            old_state=session_pb2.SESSION_STATE_WORKING, new_state=session_pb2.SESSION_STATE_PAUSED
        ),
    )
    assert reader.line() == "■ paused"
    assert reader.interrupt() == (130, "")


def test_watch_of_a_session_without_events_says_how_it_is(world: World, reader: Reader) -> None:
    world.state.session("fix", state=session_pb2.SESSION_STATE_IDLE)
    reader.start("watch", "fix")
    assert reader.line() == "fix  idle"


def test_watch_of_several_names_each_speaker_and_repeats_nothing(world: World, reader: Reader) -> None:
    first, second = world.state.session("one"), world.state.session("two")
    warn(world, "a", first)
    warn(world, "b", second)
    warn(world, "c", first)
    reader.start("watch", "one", "two")
    watching(world)
    warn(world, "d", second)
    assert [reader.line() for _ in range(7)] == [
        "one", "warning: a", "warning: c", "", "two", "warning: b", "warning: d",
    ]  # fmt: skip


def test_watch_of_none_begins_with_requests_and_states(world: World, reader: Reader) -> None:
    session = world.state.session("fix", state=session_pb2.SESSION_STATE_WAITING, attention=1)
    world.state.session("old", state=session_pb2.SESSION_STATE_ARCHIVED)
    call = event_pb2.ToolCall(tool="Bash", tool_use_id="t1", input_json='{"command": "make"}')
    said = [event_pb2.ContentBlock(text="I build it."), event_pb2.ContentBlock(tool_call=call)]
    world.state.event(session, assistant_message=event_pb2.AssistantMessage(blocks=said))
    asked = attention_pb2.AttentionRequest(
        id="r1234567", session_id=session.id, kind=attention_pb2.ATTENTION_KIND_PERMISSION, tool="Bash",
        input_json='{"command": "make"}', state=attention_pb2.ATTENTION_STATE_OPEN, tool_use_id="t1",
    )  # fmt: skip
    world.state.event(session, request_opened=event_pb2.RequestOpened(request=asked))
    reader.start("watch")
    assert [reader.line() for _ in range(6)] == [
        "fix", "● I build it.", "▸ Bash make", "  ? waits for you",
        "  → rametctl approve r1234567   or: rametctl deny r1234567 -m WHY",
        "1 session, 1 waits for you: rametctl inbox",
    ]  # fmt: skip


def test_a_killed_daemon_costs_a_watch_no_event_and_doubles_none(world: World, reader: Reader) -> None:
    session = world.state.session("fix")
    warn(world, "0", session)
    reader.start("watch", "fix", "--json")
    seen = [reader.json()]
    for number in range(1, 4):
        watching(world, number)
        warn(world, str(number), session)
        seen.append(reader.json())
        world.daemon.stop()
        warn(world, f"{number} meanwhile", session)
        world.daemon.start()
        seen.append(reader.json())
    assert [event["warning"]["message"] for event in seen] == [
        "0",
        "1",
        "1 meanwhile",
        "2",
        "2 meanwhile",
        "3",
        "3 meanwhile",
    ]
    assert [event["seq"] for event in seen] == list(range(1, 8))


def test_a_killed_daemon_costs_a_conversation_no_line_and_doubles_none(world: World, reader: Reader) -> None:
    session = world.state.session("fix")
    warn(world, "0", session)
    reader.start("watch", "fix")
    seen = [reader.line()]
    for number in range(1, 3):
        watching(world, number)
        warn(world, str(number), session)
        seen.append(reader.line())
        world.daemon.stop()
        warn(world, f"{number} meanwhile", session)
        world.daemon.start()
        seen.append(reader.line())
    assert seen == [f"warning: {text}" for text in ("0", "1", "1 meanwhile", "2", "2 meanwhile")]


def test_a_watch_of_all_shows_a_session_that_is_created_later_from_its_first_event(
    world: World, reader: Reader
) -> None:
    reader.start("watch")
    assert reader.line() == "0 sessions"
    watching(world)
    session = world.state.session("fix")
    world.state.event(session, session_created=event_pb2.SessionCreated(session=session))
    block = event_pb2.ContentBlock(text="Hello.")
    world.state.event(session, assistant_message=event_pb2.AssistantMessage(blocks=[block]))
    assert [reader.line(), reader.line()] == ["fix", "● Hello."]


def test_a_watch_shows_each_event_of_a_burst_and_none_from_before_a_removal(world: World, reader: Reader) -> None:
    gone = world.state.session("gone")
    warn(world, "from before", gone)
    session = world.state.session("fix")
    del world.state.sessions[gone.id]
    cursor = f"epoch1:{len(world.state.events)}"
    for number in range(transcript.MAX_EVENTS + 10):
        warn(world, str(number), session)
    reader.start("watch", "--since", cursor)
    assert reader.line() == "fix"
    for number in range(transcript.MAX_EVENTS + 10):
        assert reader.line() == f"warning: {number}"
    world.state.sessions[gone.id] = gone
    world.state.event(gone, session_created=event_pb2.SessionCreated(session=gone))
    warn(world, "from now", gone)
    shown: list[str] = []
    while "warning: from now" not in shown:
        shown.append(reader.line())
    assert "warning: from before" not in shown


def test_a_watched_inbox_shows_a_request_that_is_answered_at_once(world: World, reader: Reader) -> None:
    session = world.state.session("fix")
    reader.start("inbox", "--watch", "--json")
    watching(world)
    with world.state.changed:
        request = world.state.request(session, tool="Bash", input_json="{}")
        world.state.event(session, request_opened=event_pb2.RequestOpened(request=request))
        request.state = attention_pb2.ATTENTION_STATE_ANSWERED
        world.state.event(session, request_closed=event_pb2.RequestClosed(request=request))
        del world.state.requests[request.id]
    assert [reader.json()["state"], reader.json()["state"]] == ["open", "answered"]


def test_a_watched_inbox_ends_with_what_the_daemon_refuses(world: World) -> None:
    world.state.refusals["ListRequests"] = [Refusal("PERMISSION_DENIED", "not yours", "NOT_ALLOWED")]
    assert "not yours" in world.run("inbox", "--watch").err


def test_a_killed_daemon_costs_a_watched_inbox_no_request_and_doubles_none(world: World, reader: Reader) -> None:
    session = world.state.session("fix")
    reader.start("inbox", "--watch", "--json")
    shown = []
    for number in range(2):
        watching(world, number + 1)
        world.daemon.stop()
        request = world.state.request(session, tool="Bash", input_json="{}")
        world.state.event(session, request_opened=event_pb2.RequestOpened(request=request))
        world.daemon.start()
        shown.append(reader.json()["id"])
    assert shown == list(world.state.requests)


def test_a_printed_cursor_continues_the_events(world: World, reader: Reader) -> None:
    for number in range(4):
        warn(world, str(number))
    reader.start("watch", "--json", "--since", "epoch1:2")
    first = reader.json()
    assert (first["warning"]["message"], first["cursor"], first["session"]) == ("2", "epoch1:3", None)


def test_a_cursor_of_another_log_is_reported_as_a_reset(world: World, reader: Reader) -> None:
    reader.start("watch", "--json", "--since", "elsewhere:99")
    assert reader.json() == {"payload": "reset", "epoch": "epoch1", "cursor": "epoch1:0"}
    watching(world, 2)
    warn(world, "after")
    assert reader.json()["warning"]["message"] == "after"


def test_watch_ends_with_what_the_daemon_refuses(world: World) -> None:
    result = world.run("watch", "nix", "--json")
    assert (result.code, json.loads(result.out)["error"]["reason"]) == (3, "SESSION_NOT_FOUND")


def test_log_follow_continues_after_the_shown_lines(world: World, reader: Reader) -> None:
    session = world.state.session("fix")
    warn(world, "old", session)
    reader.start("log", "fix", "--follow", "--json")
    assert reader.json()["warning"]["message"] == "old"
    watching(world)
    world.daemon.stop()
    warn(world, "new", session)
    world.daemon.start()
    assert reader.json()["warning"]["message"] == "new"


WATCHES = {
    "diff": ("WatchChanges", ["diff", "fix", "--watch"]),
    "conflicts": ("WatchConflicts", ["conflicts", "fix", "--watch"]),
}


@pytest.mark.parametrize("verb", WATCHES)
def test_a_watch_survives_the_daemons_death_and_says_so(world: World, reader: Reader, verb: str) -> None:
    method, args = WATCHES[verb]
    world.state.session("fix")
    world.state.diff.patch = b"+one\n"
    reader.start(*args)
    first = reader.line()
    for _ in range(2):
        world.daemon.stop()
        world.daemon.start()
        assert reader.line() == first, "everything again, since events may have been missed"
    code, err = reader.interrupt()
    assert code == 130
    assert err.splitlines() == 2 * [
        "rametctl: the daemon stopped; connecting again …",
        "rametctl: connected again; the current state:",
    ]
    assert len(world.state.called(method)) >= 3


@pytest.mark.parametrize("verb", WATCHES)
def test_a_watch_of_how_it_is_ends_with_what_the_daemon_refuses(world: World, reader: Reader, verb: str) -> None:
    method, args = WATCHES[verb]
    world.state.session("fix")
    reader.start(*args)
    eventually_sync(lambda: world.state.called(method))
    world.daemon.stop()
    gone = Refusal("NOT_FOUND", "there is no session fix", "SESSION_NOT_FOUND")
    world.state.refusals[method] = [gone]
    world.daemon.start()
    assert reader.process.wait(timeout=20) == 3
    _, err = reader.process.communicate()
    assert err.splitlines()[-1] == "rametctl: there is no session fix"


def test_a_live_view_stays_on_the_screen_while_the_daemon_is_away(world: World) -> None:
    world.state.session("fix")
    with world.terminal("conflicts", "fix", "--watch") as terminal:
        terminal.shows("no conflicts")
        world.daemon.stop()
        terminal.shows("the daemon stopped; connecting again …")
        assert any("no conflicts" in line for line in terminal.lines)
        world.daemon.start()
        eventually_sync(lambda: len(world.state.called("WatchConflicts")) > 1)
        terminal.interrupt()
        assert terminal.ends() == 130


def test_wait_continues_over_a_restart(world: World, reader: Reader) -> None:
    session = world.state.session("fix")
    reader.start("wait", "fix", "--json")
    eventually_sync(lambda: world.state.called("WaitSessions"))
    world.daemon.stop()
    world.daemon.start()
    world.state.wait = session_pb2.WaitSessionsResponse(outcome=session_pb2.WAIT_OUTCOME_DONE, sessions=[session])
    assert reader.json()["outcome"] == "done"
    assert reader.process.wait(timeout=10) == 0


def test_a_call_during_which_the_daemon_dies_is_repeated_with_its_id(world: World, reader: Reader) -> None:
    world.state.session("fix")
    died: list[str] = []

    def die_once(call: Any) -> None:
        if call.method == "StopSession" and not died:
            died.append(call.request.request_id)
            world.daemon.stop()

    world.state.on_call = die_once
    reader.start("stop", "fix")
    eventually_sync(lambda: died)
    assert reader.process.stderr is not None
    assert reader.process.stderr.readline() == GONE  # at once, without a daemon
    world.daemon.start()
    assert reader.line() == "fix is stopped, 0 turns"
    assert {call.request_id for call in world.state.called("StopSession")} == set(died)


@pytest.mark.parametrize(
    ("method", "args"),
    [
        ("StopSession", ["stop", "fix"]),
        ("SendPrompt", ["send", "fix", "go on"]),
        ("CreateSession", ["new", "do it"]),
        ("GetSession", ["show", "fix"]),
    ],
)
def test_what_was_asked_of_a_daemon_that_never_answered_may_have_been_done(
    world: World, monkeypatch: pytest.MonkeyPatch, method: str, args: list[str]
) -> None:
    monkeypatch.setattr(connection, "RETRY_DEADLINE", 0.2)
    world.state.session("fix")

    def die(call: Any) -> None:
        if call.method == method:
            world.daemon.stop()

    world.state.on_call = die
    result = world.run(*args)
    assert result.code == 5
    if method.startswith("Get"):
        assert result.err == f"{GONE}rametctl: no daemon is running; run: rametctl daemon start\n"
    else:
        assert result.err.startswith(f"{GONE}rametctl: the daemon stopped before it answered, and may have carried the")
        assert result.err.endswith("before you repeat the command, see: rametctl ls\n")


def test_ls_watch_prints_a_line_per_change_where_there_is_no_terminal(world: World, reader: Reader) -> None:
    session = world.state.session("fix")
    reader.start("ls", "--watch")
    assert reader.line() == "fix is idle, 0 turns"
    watching(world)
    session.state = session_pb2.SESSION_STATE_WORKING
    world.state.event(session, state_changed=event_pb2.StateChanged(new_state=session.state))
    assert reader.line() == "fix is working, 0 turns"
    assert reader.interrupt() == (130, "")


def test_the_inbox_can_be_watched(world: World, reader: Reader) -> None:
    session = world.state.session("fix")
    reader.start("inbox", "--watch", "--json")
    watching(world)
    request = world.state.request(session, tool="Bash", input_json="{}")
    world.state.event(session, request_opened=event_pb2.RequestOpened(request=request))
    assert reader.json()["state"] == "open"
    request.state = attention_pb2.ATTENTION_STATE_ANSWERED
    world.state.event(session, request_closed=event_pb2.RequestClosed(request=request))
    assert reader.json()["state"] == "answered"


def test_new_watch_shows_the_session_and_then_what_it_does(world: World, reader: Reader) -> None:
    reader.start("new", "do", "--watch", "--json")
    assert reader.json()["name"] == "made-up"
    watching(world)
    warn(world, "at work", next(iter(world.state.sessions.values())))
    assert reader.json()["warning"]["message"] == "at work"


def test_a_reader_that_has_seen_enough_ends_it_quietly(world: World) -> None:
    session = world.state.session("fix")
    for number in range(3000):
        warn(world, f"{number} {'x' * 100}", session)
    process = world.popen("log", "fix")
    assert process.stdout is not None
    assert process.stdout.readline()
    process.stdout.close()
    assert process.stderr is not None
    with process.stderr:
        assert process.stderr.read() == ""
    assert process.wait(timeout=20) == 0


def test_ctrl_c_is_130_without_a_traceback_even_while_the_daemon_is_silent(world: World) -> None:
    entered: list[bool] = []

    def hold(call: Any) -> None:
        entered.append(True)

    world.state.on_call = hold
    world.state.session("fix")
    process = world.popen("wait", "fix")
    eventually_sync(lambda: len(entered) > 1)
    os.kill(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out, err) == (130, "", "fix continues: rametctl watch fix\n")


def test_ctrl_c_ends_only_the_watch_and_says_so(world: World, reader: Reader) -> None:
    reader.start("new", "do", "--name", "first", "--watch")
    assert reader.line() == "name      first"
    watching(world)
    assert reader.interrupt() == (130, "first continues: rametctl watch first\n")
    reader.end()

    reader.start("new", "do", "--name", "it's", "--count", "2", "--wait")
    assert reader.line() == "name      it's-1"
    eventually_sync(lambda: world.state.called("WaitSessions"))
    quoted = """'it'"'"'s-1' 'it'"'"'s-2'"""
    assert reader.interrupt() == (130, f"it's-1, it's-2 continue: rametctl watch {quoted}\n")
