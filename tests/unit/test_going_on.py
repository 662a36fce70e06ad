"""Continuation of stopped sessions: the interrupted turn first, and nothing that another principal
must decide."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rametd.agents.base import Frame
from rametd.agents.claude.frames import read_frame
from rametd.agents.claude.kind import Claude
from rametd.config import Config
from rametd.domain.errors import RequestClosedError
from rametd.domain.models import DAEMON, OWNER, Hold, Mode, PromptState, RequestKind
from rametd.domain.states import State
from rametd.parts import forbid_bypass
from rametd.services.agents.endings import record_end
from rametd.services.agents.runner import project
from rametd.services.core import Policy
from rametd.services.delivery import deliver
from rametd.services.predecessors import blocked_by
from rametd.services.sessions import resume_session
from rametd.services.waiting import Condition, Outcome, judge_one
from rametd.store import Unit
from rametd.store.rows import Scope
from rametd.store.schema import migrate, migrations

from tests.support.rows import a_repo, a_session, an_agent

POLICY = Policy(Config(), {"claude": Claude()})
IDLE = {"type": "system", "subtype": "session_state_changed", "state": "idle"}
RUNNING = {"type": "system", "subtype": "session_state_changed", "state": "running"}


def result(**fields: Any) -> dict[str, Any]:
    return {"type": "result", "subtype": "success", "result_index": 0, "result": "done", **fields}


@pytest.fixture
def unit() -> Iterator[Unit]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        migrate(db, Path(":memory:"), migrations())
        unit = Unit(Scope(db))
        unit.repos.upsert(a_repo())
        yield unit


def lines(*messages: dict[str, Any]) -> list[Frame]:
    """Write a journal with these lines."""
    frames: list[Frame] = []
    start = 0
    for message in messages:
        line = json.dumps(message).encode() + b"\n"
        frames.append(read_frame("one", 1, start, start + len(line), line))
        start += len(line)
    return frames


def test_the_notice_of_a_killed_background_command_is_no_turn(unit: Unit) -> None:
    session = unit.sessions.insert(a_session(state=State.WORKING, generation=1, turns=1))
    unit.agents.insert(an_agent())
    unit.prompts.add("p2", session.id, "go on", "owner")
    unit.prompts.mark_sent("p2", 1)
    # As Claude Code 2.1.332 writes it when a resumed conversation had a background command that was
    # killed.
    notice = result(num_turns=0, result="", origin={"kind": "task-notification"}, model_usage_since_last_result={})
    queued = {"type": "command_lifecycle", "command_uuid": "p2", "state": "queued"}
    sent = [{"type": "system", "subtype": "init"}, queued, notice]
    seen = {"type": "command_lifecycle", "command_uuid": "p2", "state": "started"}
    frames = lines(RUNNING, *sent, seen, result(result_index=1), IDLE)
    first = project(unit, "one", 1, frames[:4], POLICY)
    assert (first.session.turns, first.session.state, first.turn_ended) == (1, State.WORKING, False)
    second = project(unit, "one", 1, frames[4:], POLICY)
    assert (second.session.turns, second.session.state, second.turn_ended) == (2, State.IDLE, True)


def test_a_notice_without_a_prompt_behind_it_leaves_the_session_idle(unit: Unit) -> None:
    unit.sessions.insert(a_session(state=State.IDLE, generation=1, turns=1))
    unit.agents.insert(an_agent())
    notice = result(num_turns=0, result="", origin={"kind": "task-notification"})
    projected = project(unit, "one", 1, lines(RUNNING, notice, IDLE), POLICY)
    assert (projected.session.state, projected.session.turns) == (State.IDLE, 1)
    assert unit.requests.open("one") == []


def asks(control_id: str, **tool_input: str) -> dict[str, Any]:
    request = {"subtype": "can_use_tool", "tool_name": "Bash", "tool_use_id": control_id, "input": tool_input}
    return {"type": "control_request", "request_id": control_id, "request": request}


@pytest.mark.parametrize(
    ("again", "ids"),
    [
        ({"command": "make", "description": "build it"}, ["same"]),
        ({"command": "make", "description": "other words"}, ["same"]),
        ({"command": "make all"}, ["new"]),
        ({"command": "make", "timeout": "5"}, ["new"]),
    ],
)
def test_a_resumed_agent_leaves_one_request_the_one_that_it_waits_for(
    unit: Unit, again: dict[str, str], ids: list[str]
) -> None:
    unit.sessions.insert(a_session(state=State.WORKING, generation=1))
    unit.agents.insert(an_agent())
    project(unit, "one", 1, lines(asks("c1", command="make", description="build it")), POLICY)
    (first,) = unit.requests.open("one")
    record_end(unit, Claude(), "one", 1, record=None, stderr_tail="", unterminated=b"", max_resumes=3)
    assert [each.id for each in unit.requests.open("one")] == [first.id], "it may be answered before it is asked again"
    unit.agents.insert(an_agent(generation=2))
    unit.sessions.transition("one", State.QUEUED)
    unit.sessions.transition("one", State.WORKING, generation=2)
    project(unit, "one", 2, lines(asks("c2", **again)), POLICY)
    (live,) = unit.requests.open("one")
    assert ["same" if live.id == first.id else "new"] == ids
    assert (live.generation, live.control_id) == (2, "c2")
    if live.id != first.id:
        with pytest.raises(RequestClosedError) as caught:
            unit.requests.answer(first.id, "{}", "owner")
        assert live.id in str(caught.value.hint)


def test_a_turn_that_was_cut_off_is_finished_before_what_was_asked_for_later(unit: Unit) -> None:
    session = unit.sessions.insert(a_session(state=State.QUEUED, generation=1, interrupted=True))
    unit.agents.insert(an_agent())
    unit.prompts.add("later", "one", "something else", "owner")

    deliver(unit, Claude(), session, begin=True)

    states = {prompt.source: prompt.state for prompt in unit.prompts.open("one")}
    assert states == {"owner": PromptState.QUEUED, DAEMON: PromptState.SENT}
    project(unit, "one", 1, lines(RUNNING, result(), IDLE), POLICY)
    assert unit.sessions.get("one").state == State.QUEUED


def test_other_words_of_the_daemon_are_not_taken_for_the_continuation(unit: Unit) -> None:
    session = unit.sessions.insert(a_session(state=State.QUEUED, generation=1, interrupted=True))
    unit.agents.insert(an_agent())
    unit.prompts.add("asked", "one", "the check failed, mend it", DAEMON)
    unit.prompts.mark_received("asked", 1)
    notice = unit.prompts.add("told", "one", "a sibling changes the same lines", DAEMON)

    deliver(unit, Claude(), session, begin=True)

    (waiting, sent) = unit.prompts.open("one")
    assert (waiting.id, waiting.state) == (notice.id, PromptState.QUEUED)
    assert sent.continues
    assert "the check failed, mend it" in sent.text


def test_a_turn_that_money_ended_is_held_though_the_ledger_has_not_all_of_it(unit: Unit) -> None:
    unit.sessions.insert(a_session(state=State.WORKING, generation=1))
    unit.agents.insert(an_agent(over_budget="$2.00 of $2.00"))

    project(unit, "one", 1, lines(RUNNING, result(terminal_reason="aborted_tools"), IDLE), POLICY)

    session = unit.sessions.get("one")
    assert (session.state, session.hold, session.interrupted) == (State.PAUSED, Hold.BUDGET, True)
    assert session.state_reason == "$2.00 of $2.00"


def test_only_a_turn_that_was_done_wants_a_look(unit: Unit) -> None:
    unit.sessions.insert(a_session(state=State.WORKING, generation=1))
    unit.agents.insert(an_agent())
    project(unit, "one", 1, lines(RUNNING, result(terminal_reason="aborted_streaming"), IDLE), POLICY)
    assert unit.requests.open("one") == []
    done = lines(RUNNING, result(terminal_reason="aborted_streaming"), IDLE, RUNNING, result(result_index=1), IDLE)
    project(unit, "one", 1, done[3:], POLICY)
    assert [request.kind for request in unit.requests.open("one")] == [RequestKind.REVIEW]


def test_a_turn_that_follows_by_itself_replaces_the_review_of_the_turn_before(unit: Unit) -> None:
    """As after work in the background: the inbox showed that the build was started, and never that
    it failed."""
    unit.sessions.insert(a_session(state=State.WORKING, generation=1))
    unit.agents.insert(an_agent())
    turns = [
        frame
        for index, words in enumerate(("started the build", "the build failed"))
        for frame in (RUNNING, result(result=words, result_index=index), IDLE)
    ]
    project(unit, "one", 1, lines(*turns), POLICY)
    [review] = unit.requests.open("one")
    assert (review.kind, review.reason) == (RequestKind.REVIEW, "the build failed")


@pytest.mark.parametrize(
    ("hold", "verdict"),
    [
        (Hold.LIMIT, Outcome.TIMEOUT),  # continues by itself
        (Hold.BUDGET, Outcome.ATTENTION),
        (Hold.PERSON, Outcome.FAILED),
        (Hold.STOPPED, Outcome.FAILED),
    ],
)
def test_waiters_learn_whether_a_held_session_continues(unit: Unit, hold: Hold, verdict: Outcome) -> None:
    session = unit.sessions.insert(a_session(state=State.PAUSED, hold=hold))
    assert judge_one(unit, session, Condition.IDLE) == verdict


@pytest.mark.parametrize(("hold", "starts"), [(Hold.NONE, True), (Hold.INTERRUPTED, False)])
def test_a_successor_waits_for_a_turn_that_was_done(unit: Unit, hold: Hold, starts: bool) -> None:
    unit.sessions.insert(a_session("first", state=State.IDLE, turns=1, hold=hold))
    second = unit.sessions.insert(a_session("second", state=State.QUEUED, after=("first",)))
    assert (blocked_by(unit, second) is None) == starts


@pytest.mark.parametrize(
    ("state", "hold", "starts"),
    [
        (State.IDLE, Hold.NONE, True),
        (State.IDLE, Hold.INTERRUPTED, False),
        (State.FAILED, Hold.NONE, False),
        (State.PAUSED, Hold.STOPPED, False),
    ],
)
def test_an_archived_predecessor_counts_as_it_was_before(unit: Unit, state: State, hold: Hold, starts: bool) -> None:
    before = a_session("first", state=state, turns=1, hold=hold)
    unit.sessions.insert(replace(before, state=State.ARCHIVED, hold=Hold.NONE, before_archive=before.last_state))
    second = unit.sessions.insert(a_session("second", state=State.QUEUED, after=("first",)))
    why = blocked_by(unit, second)
    assert (why is None) == starts
    if why is not None:
        assert "`rametctl restore first`, or continue without it: `rametctl resume second`" in why
        assert resume_session(unit, second, OWNER).after == ()


def test_bypass_that_was_taken_back_holds_for_no_session(unit: Unit) -> None:
    unit.sessions.insert(a_session("loose", mode=Mode.BYPASS))
    unit.sessions.insert(a_session("usual", mode=Mode.ACCEPT_EDITS))
    forbid_bypass(unit)
    assert {each.id: each.mode for each in unit.sessions.list()} == {"loose": Mode.DEFAULT, "usual": Mode.ACCEPT_EDITS}


@pytest.mark.parametrize("begun", [False, True])
def test_a_prompt_that_arrives_while_its_session_is_stopped_is_not_lost(unit: Unit, begun: bool) -> None:
    session = unit.sessions.insert(a_session(state=State.PAUSED, hold=Hold.STOPPED, generation=1))
    unit.agents.insert(an_agent(stop_intent="stop"))
    unit.prompts.add("p1", session.id, "work", "owner")
    unit.prompts.mark_sent("p1", 1)
    # Between the stop and its end the agent may read the prompt or not.
    if begun:
        seen = {"type": "command_lifecycle", "command_uuid": "p1", "state": "started"}
        project(unit, "one", 1, lines(seen, RUNNING), POLICY)
    record_end(unit, Claude(), "one", 1, record=None, stderr_tail="", unterminated=b"", max_resumes=3)
    now = unit.sessions.get("one")
    assert now.state == State.PAUSED
    assert now.interrupted or [each.state for each in unit.prompts.open("one")] == [PromptState.QUEUED]
    assert now.interrupted is begun
