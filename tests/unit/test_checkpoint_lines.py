"""A session's current checkpoint after rewinds, and after undone forks."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from rametd.domain.checkpoints import Checkpoint, CheckpointReason
from rametd.store import Unit
from rametd.store.rows import Scope
from rametd.store.schema import migrate, migrations

from tests.support.rows import a_repo, a_session


@contextmanager
def stored() -> Iterator[Unit]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        migrate(db, Path(":memory:"), migrations())
        unit = Unit(Scope(db, 1.0))
        unit.repos.upsert(a_repo())
        unit.sessions.insert(a_session())
        yield unit


def make(unit: Unit) -> Checkpoint:
    """Store a checkpoint of the session, as `Checkpointer` does."""
    latest = unit.checkpoints.latest("one")
    number = latest.number + 1 if latest is not None else 1
    parent = unit.sessions.get("one").checkpoint
    made = Checkpoint(
        id=f"c{number}",
        session_id="one",
        number=number,
        reason=CheckpointReason.TURN,
        turn=number,
        snapshot="c" * 40,
        tree="t" * 40,
        head="h" * 40,
        ref=f"refs/ramet/checkpoints/one/{number}",
        create_time=1.0,
        summary="",
        files=0,
        additions=0,
        deletions=0,
        conversation_id="",
        message_id="",
        parent=parent,
    )
    unit.sessions.update("one", checkpoint=number)
    return unit.checkpoints.add(made)


def line(unit: Unit) -> list[int]:
    return list(unit.checkpoints.line("one", unit.sessions.get("one").checkpoint))


def current(unit: Unit) -> int:
    found = unit.checkpoints.current(unit.sessions.get("one"))
    return found.number if found is not None else 0


def test_before_the_first_checkpoint_there_is_no_line() -> None:
    with stored() as unit:
        assert (line(unit), current(unit), unit.checkpoints.current(a_session("another"))) == ([], 0, None)


def test_a_rewind_leaves_checkpoints_behind_and_another_rewind_returns_to_them() -> None:
    with stored() as unit:
        for _ in range(4):
            make(unit)
        unit.sessions.update("one", checkpoint=2)
        assert (line(unit), current(unit)) == ([2, 1], 2)
        for _ in range(2):
            make(unit)
        assert (line(unit), current(unit)) == ([6, 5, 2, 1], 6)
        unit.sessions.update("one", checkpoint=4)
        assert line(unit) == [4, 3, 2, 1]


def test_what_followed_on_a_dropped_checkpoint_follows_on_its_parent() -> None:
    with stored() as unit:
        first, dropped, last = make(unit), make(unit), make(unit)
        unit.checkpoints.remove(dropped)
        assert (line(unit), current(unit)) == ([3, 1], 3)
        unit.checkpoints.remove(last)
        assert (line(unit), current(unit)) == ([1], first.number)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 100)), max_size=20))
def test_the_line_is_the_one_that_a_tree_of_checkpoints_gives(steps: list[tuple[int, int]]) -> None:
    parents: dict[int, int] = {1: 0}
    stands = 1
    with stored() as unit:
        make(unit)
        for made, wanted in steps:
            for _ in range(made):
                number = make(unit).number
                parents[number], stands = stands, number
            stands = wanted % len(parents) + 1
            unit.sessions.update("one", checkpoint=stands)
        expected, at = [], stands
        while at:
            expected.append(at)
            at = parents[at]
        assert (line(unit), current(unit)) == (expected, stands)


def test_a_session_in_the_trash_keeps_its_current_checkpoint() -> None:
    with stored() as unit:
        first = make(unit)
        make(unit)
        session = unit.sessions.update("one", checkpoint=1)
        unit.sessions.delete("one")
        assert unit.checkpoints.current(session) == first
