"""The state of a session after a restore, for every state that it can have before."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from rametd.domain.models import Hold, Session
from rametd.domain.states import State
from rametd.services.archiving.restore import restored_state
from rametd.store import Unit
from rametd.store.rows import Scope
from rametd.store.schema import migrate, migrations

from tests.support.rows import a_repo, a_session

RESUMABLE = (State.PAUSED, Hold.STOPPED, "restored: `rametctl resume one` continues it")
CASES: dict[tuple[State, Hold, bool], tuple[State, Hold, str]] = {
    (State.IDLE, Hold.NONE, False): (State.IDLE, Hold.NONE, "why"),
    (State.IDLE, Hold.INTERRUPTED, False): (State.IDLE, Hold.INTERRUPTED, "why"),
    (State.FAILED, Hold.NONE, False): (State.FAILED, Hold.NONE, "why"),
    (State.FAILED, Hold.NONE, True): (State.FAILED, Hold.NONE, "why"),
    (State.LOST, Hold.NONE, False): (State.IDLE, Hold.NONE, ""),
    (State.LOST, Hold.NONE, True): RESUMABLE,
    (State.QUEUED, Hold.NONE, False): (State.IDLE, Hold.NONE, ""),
    (State.STARTING, Hold.NONE, False): (State.IDLE, Hold.NONE, ""),
    (State.WORKING, Hold.NONE, True): RESUMABLE,
    (State.WAITING, Hold.NONE, True): RESUMABLE,
    (State.PAUSED, Hold.PERSON, False): (State.PAUSED, Hold.PERSON, "held: `rametctl resume one` continues it"),
    (State.PAUSED, Hold.PERSON, True): (State.PAUSED, Hold.PERSON, "held: `rametctl resume one` continues it"),
    (State.PAUSED, Hold.BUDGET, True): (State.PAUSED, Hold.BUDGET, "why"),
    (State.PAUSED, Hold.STOPPED, False): (State.IDLE, Hold.NONE, ""),
    (State.PAUSED, Hold.STOPPED, True): RESUMABLE,
    (State.PAUSED, Hold.LIMIT, True): RESUMABLE,
    (State.PAUSED, Hold.UPSTREAM, True): RESUMABLE,
    (State.PAUSED, Hold.LOGIN, True): RESUMABLE,
    (State.PAUSED, Hold.OPERATION, False): (State.IDLE, Hold.NONE, ""),
}


@pytest.fixture
def unit() -> Iterator[Unit]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        migrate(db, Path(":memory:"), migrations())
        unit = Unit(Scope(db, 1000.0))
        unit.repos.upsert(a_repo())
        yield unit


@pytest.mark.parametrize("archived", [True, False], ids=["archived", "removed"])
@pytest.mark.parametrize(("before", "after"), CASES.items(), ids=lambda each: "-".join(str(part) for part in each[:2]))
def test_a_restored_session_has_the_state_that_it_had(
    unit: Unit, before: tuple[State, Hold, bool], after: tuple[State, Hold, str], archived: bool
) -> None:
    state, hold, interrupted = before
    session = a_session(state=state, hold=hold, state_reason="why", interrupted=interrupted)
    kept = a_session(state=State.ARCHIVED, before_archive=session.last_state) if archived else session
    unit.sessions.insert(kept)
    now = a_session(state=State.IDLE, interrupted=interrupted)
    assert restored_state(unit, kept, now) == after


def test_every_state_has_a_case() -> None:
    assert {state for state, _, _ in CASES} == set(State) - {State.ARCHIVED}
    assert {hold for _, hold, _ in CASES} == set(Hold) - {Hold.ATTACHED}  # its archive is refused


def test_a_prompt_that_no_agent_got_waits_for_the_person(unit: Unit) -> None:
    session: Session = unit.sessions.insert(a_session(state=State.IDLE))
    unit.prompts.add("prompt", session.id, "go on", "owner")
    assert restored_state(unit, session, session) == RESUMABLE
