"""Lines of `ls` and `plan status`: one for each session, readable at 80 columns."""

import io
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from ramet.v1 import plan_pb2, session_pb2
from rametctl.commands.send import fate
from rametctl.console.output import Output
from rametctl.render.plan import status_lines
from rametctl.render.session import doing, session_table

NOW = 1_700_000_000
State = session_pb2.SessionState


def a_session(state: "State.ValueType", **fields: Any) -> session_pb2.Session:
    since = Timestamp(seconds=NOW - 240)
    values: dict[str, Any] = {"name": "fix", "branch": "ramet/fix", "state": state, "since": since, "turns": 1}
    return session_pb2.Session(**values | fields)


SERVER = session_pb2.BackgroundCommand(description="python3 -m\nhttp.server", start_time=Timestamp(seconds=NOW - 60))


@pytest.mark.parametrize(
    ("session", "words"),
    [
        (a_session(State.SESSION_STATE_WORKING, now="Edit src/a.py"), "Edit src/a.py"),
        (a_session(State.SESSION_STATE_WAITING, now="wants to run: make", attention=1), "wants to run: make"),
        (
            a_session(State.SESSION_STATE_WAITING, now="wants to run: make", attention=3),
            "wants to run: make (and 2 more)",
        ),
        (a_session(State.SESSION_STATE_WAITING, attention=1), "waits for you"),
        (a_session(State.SESSION_STATE_IDLE, now="Done.\n", attention=1), "a request waits for you"),
        (a_session(State.SESSION_STATE_IDLE, now="Done.\n"), "Done."),
        (
            a_session(State.SESSION_STATE_IDLE, now="Done.", landed_reason="merged into main"),
            "landed: merged into main",
        ),
        (a_session(State.SESSION_STATE_IDLE, now="", landed_reason="merged into main", turns=0), ""),
        (
            a_session(State.SESSION_STATE_IDLE, now="Done.", background=[SERVER]),
            "in background: python3 -m http.server 1m; Done.",
        ),
        (
            a_session(State.SESSION_STATE_WAITING, now="asks: why?", attention=1, background=[SERVER]),
            "asks: why?; in background: python3 -m http.server 1m",
        ),
        (a_session(State.SESSION_STATE_IDLE, now="Done.", worktree_gone=True), "tree gone, see: rametctl doctor"),
        (a_session(State.SESSION_STATE_IDLE, now="Done.", under_way="a rebase"), "a rebase is under way"),
        (a_session(State.SESSION_STATE_FAILED, now="no disk", state_reason="no disk"), "no disk"),
    ],
)
def test_a_session_says_in_one_line_what_it_needs_does_or_said(session: session_pb2.Session, words: str) -> None:
    assert doing(session, NOW) == words


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def table(*sessions: session_pb2.Session) -> list[str]:
    stream = Terminal()
    output = Output(stream, stream, {"TERM": "xterm", "NO_COLOR": "1"})
    return [
        line.text.rstrip() for line in session_table(output, [(0, each) for each in sessions], NOW, with_repo=False)
    ]


def test_a_list_fits_eighty_columns_and_shows_automatic_names_in_full() -> None:
    long = a_session(State.SESSION_STATE_WORKING, name="n" * 24, branch="ramet/" + "n" * 24, now="word " * 60)
    header, row = table(long)
    assert header.split() == ["NAME", "STATE", "SINCE", "COST", "NOW"]
    assert len(row) <= 80
    assert row.startswith("n" * 24 + "  working     4m")


def test_a_branch_is_shown_where_one_differs_from_its_sessions_name() -> None:
    header, same, other = table(
        a_session(State.SESSION_STATE_IDLE), a_session(State.SESSION_STATE_IDLE, name="docs", branch="fix-docs")
    )
    assert "BRANCH" in header
    assert "ramet/fix" not in same
    assert "fix-docs" in other


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (State.SESSION_STATE_IDLE, "starts a turn"),
        (State.SESSION_STATE_WORKING, "reaches the running turn"),
        (State.SESSION_STATE_WAITING, "rametctl inbox fix"),
        (State.SESSION_STATE_QUEUED, "starts a turn"),
        (State.SESSION_STATE_PAUSED, "rametctl resume fix"),
    ],
)
def test_send_says_what_becomes_of_the_prompt(state: "State.ValueType", words: str) -> None:
    assert words in fate(session_pb2.SendPromptResponse(session=a_session(state)))


@pytest.mark.parametrize("place", ["attached at pts/3", "attached (pid 12)"])
def test_a_prompt_for_an_attached_session_waits_for_that_program_not_for_a_resume(place: str) -> None:
    session = a_session(State.SESSION_STATE_PAUSED, state_reason=place)
    words = fate(session_pb2.SendPromptResponse(session=session))
    assert words.endswith(f"ends: the session is {place}")
    assert "resume" not in words


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (State.SESSION_STATE_QUEUED, "waits until claude is logged in"),
        (State.SESSION_STATE_PAUSED, "$0.01 of $0.01 spent: `rametctl set fix --budget USD` continues it"),
    ],
)
def test_a_prompt_for_a_held_session_names_the_reason(state: "State.ValueType", reason: str) -> None:
    assert fate(session_pb2.SendPromptResponse(session=a_session(state, state_reason=reason))) == f"kept: {reason}"


def test_a_prompt_that_waits_for_the_end_of_a_turn_is_said_to_wait() -> None:
    waits = session_pb2.Prompt(state=session_pb2.PROMPT_STATE_QUEUED)
    working = a_session(State.SESSION_STATE_WORKING)
    assert "once the running turn has ended" in fate(session_pb2.SendPromptResponse(session=working, prompt=waits))


def test_a_prompt_for_a_blocked_turn_names_the_command_that_unblocks_it() -> None:
    waiting = session_pb2.SendPromptResponse(session=a_session(State.SESSION_STATE_WAITING))
    words = fate(waiting, "rametctl approve c8eq468x")
    assert words == "queued until its request is answered: rametctl approve c8eq468x"


@pytest.mark.parametrize(("dirty", "name", "columns"), [(0, "api", 7), (2, "api", 8), (2, "other", 9)])
def test_a_plan_shows_no_column_of_zeros_and_leaves_room_for_the_reasons(dirty: int, name: str, columns: int) -> None:
    session = a_session(State.SESSION_STATE_WAITING, name=name)
    thread = plan_pb2.Thread(id="api", name=name)
    status = plan_pb2.ThreadStatus(thread=thread, session=session, ahead=1, dirty=dirty, landing="waits for api " * 5)
    answer = plan_pb2.GetPlanResponse(plan=plan_pb2.Plan(name="plan"), threads=[status])
    stream = Terminal()
    _, header, row = (line.text for line in status_lines(Output(stream, stream, {"TERM": "xterm"}), answer))
    assert len(header.split()) == columns
    assert ("DIRTY" in header, "NAME" in header) == (bool(dirty), name != "api")
    assert "waits for api waits for" in row
    whole = Output(io.StringIO(), io.StringIO(), {})
    assert len(list(status_lines(whole, answer))[1].text.split()) == 11
