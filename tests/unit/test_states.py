"""The table of transitions: a session's row follows it in every sequence."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ramet.v1 import event_pb2
from rametd.domain.errors import ChangedError, WrongStateError
from rametd.domain.models import Hold
from rametd.domain.states import BUSY_STATES, SLOT_STATES, TRANSITIONS, State, check_transition
from rametd.services.lifecycle import change_state
from rametd.services.views import STATES
from rametd.store import Unit
from rametd.store.rows import Scope
from rametd.store.schema import migrate, migrations

from tests.support.rows import a_repo, a_session

states = st.sampled_from(State)


@contextmanager
def a_unit(state: State) -> Iterator[Unit]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        migrate(db, Path(":memory:"), migrations())
        unit = Unit(Scope(db))
        unit.repos.upsert(a_repo())
        unit.sessions.insert(a_session(state=state))
        yield unit


def reachable(start: State) -> set[State]:
    seen, todo = {start}, [start]
    while todo:
        todo += (fresh := TRANSITIONS[todo.pop()] - seen)
        seen |= fresh
    return seen


def test_every_state_has_its_row_in_the_table() -> None:
    assert set(TRANSITIONS) == set(State)


def test_the_states_are_those_of_the_contract() -> None:
    assert {state.value for state in State} == {
        "queued", "starting", "working", "waiting", "idle", "paused", "lost", "failed", "archived",
    }  # fmt: skip


@pytest.mark.parametrize("start", State)
def test_no_state_is_a_dead_end(start: State) -> None:
    assert reachable(start) == set(State)


@pytest.mark.parametrize("state", sorted(BUSY_STATES))
def test_a_session_at_work_is_never_archived_under_its_agent(state: State) -> None:
    assert State.ARCHIVED not in TRANSITIONS[state]


def test_an_archived_session_is_restored_idle_and_in_no_other_way() -> None:
    assert TRANSITIONS[State.ARCHIVED] == {State.IDLE}


def test_a_held_session_starts_only_by_way_of_the_queue() -> None:
    for held in (State.PAUSED, State.FAILED, State.ARCHIVED):
        assert not TRANSITIONS[held] & BUSY_STATES


def test_a_session_that_waits_for_a_person_holds_no_slot() -> None:
    assert State.WAITING not in SLOT_STATES


@given(states, st.lists(states, max_size=20))
def test_a_random_walk_never_leaves_the_table(start: State, wanted: list[State]) -> None:
    with a_unit(start) as unit:
        walked = [start]
        for to in wanted:
            session = unit.sessions.get("one")
            before = session.state
            if to in TRANSITIONS[before] or to == before:
                assert change_state(unit, session, to).state == to
                if to != before:
                    walked.append(to)
            else:
                with pytest.raises(WrongStateError):
                    change_state(unit, session, to)
                assert unit.sessions.get("one") == session
        logged = [
            event_pb2.Event.FromString(event.payload).state_changed
            for event in unit.events.list(kinds=("state_changed",))
        ]
        assert [(each.old_state, each.new_state) for each in logged] == [
            (STATES[old], STATES[new]) for old, new in pairwise(walked)
        ]


@given(states, states, states)
def test_a_change_that_starts_from_a_state_which_is_no_more_changes_nothing(
    now: State, believed: State, to: State
) -> None:
    with a_unit(now) as unit:
        before = unit.sessions.get("one")
        if now == believed:
            return
        with pytest.raises(ChangedError):
            unit.sessions.transition("one", to, reason="", hold=Hold.NONE, expect={believed})
        assert unit.sessions.get("one") == before


@given(states, states)
def test_an_illegal_transition_names_both_states(old: State, new: State) -> None:
    if new in TRANSITIONS[old]:
        check_transition(old, new)
        return
    with pytest.raises(WrongStateError) as caught:
        check_transition(old, new)
    assert (caught.value.data["old"], caught.value.data["new"]) == (old, new)
