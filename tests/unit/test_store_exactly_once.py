"""Journals become events exactly once, for any batches in any order."""

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rametd.domain.errors import StaleBatchError
from rametd.domain.models import NewEvent
from rametd.store import Reader, Store, Unit
from rametd.store.rows import Scope
from rametd.store.schema import migrate, migrations

from tests.support.rows import a_repo, a_session, an_agent

JOURNAL = bytes(range(64))


@contextmanager
def a_unit() -> Iterator[tuple[sqlite3.Connection, Unit]]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        migrate(db, Path(":memory:"), migrations())
        unit = Unit(Scope(db))
        set_up(unit)
        yield db, unit


def set_up(unit: Unit) -> None:
    unit.repos.upsert(a_repo())
    unit.sessions.insert(a_session())
    unit.agents.insert(an_agent())


def project(unit: Unit, start: int, end: int) -> None:
    """Append events first, so that the guard must undo them."""
    unit.events.append(*(NewEvent("byte", "one", frame=JOURNAL[at : at + 1]) for at in range(start, end)))
    unit.agents.advance("one", 1, end, expect_offset=start)


def offset(reader: Reader) -> int:
    agent = reader.agents.get("one", 1)
    assert agent is not None
    return agent.journal_offset


def projected(reader: Reader) -> bytes:
    return b"".join(event.frame for event in reader.events.list())


batches = st.lists(
    st.tuples(st.integers(0, len(JOURNAL)), st.integers(0, len(JOURNAL))).map(lambda ends: (min(ends), max(ends))),
    max_size=30,
)


@given(batches, st.randoms(use_true_random=False))
def test_no_order_of_repeated_overlapping_or_missing_batches_doubles_or_loses(
    cuts: list[tuple[int, int]], chance: object
) -> None:
    # Also batches that follow each other, so that many are valid.
    ends = sorted({0, len(JOURNAL), *(end for pair in cuts for end in pair)})
    tried = [*cuts, *pairwise(ends), *cuts]
    chance.shuffle(tried)  # type: ignore[attr-defined]  # hypothesis has no public name for the type
    with a_unit() as (_, unit):
        for start, end in tried:
            stored = offset(unit)
            with nullcontext() if start == stored else pytest.raises(StaleBatchError), unit._scope.savepoint():
                project(unit, start, end)
            assert projected(unit) == JOURNAL[: offset(unit)]
        project(unit, offset(unit), len(JOURNAL))
        assert projected(unit) == JOURNAL


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans(), st.booleans()), max_size=8))
def test_events_of_the_works_that_did_not_fail_are_stored_in_order(works: list[tuple[int, bool, bool]]) -> None:
    """Run one transaction with works that append events, perhaps read them (which inserts those of
    earlier works too), and perhaps fail."""
    expected: list[str] = []
    with a_unit() as (db, unit):
        for number, (count, reads, fails) in enumerate(works):
            names = [f"{number}.{index}" for index in range(count)]
            with pytest.raises(StaleBatchError) if fails else nullcontext(), unit._scope.savepoint():
                unit.events.append(*(NewEvent(name, "one") for name in names))
                if reads:
                    assert [event.kind for event in unit.events.list()] == expected + names
                if fails:
                    unit.agents.advance("one", 1, 2, expect_offset=1)
            expected += [] if fails else names
        unit.events.flush()
        assert db.execute("SELECT seq, kind FROM events").fetchall() == [*enumerate(expected, 1)]
        assert unit.sessions.get("one").last_seq == len(expected)


async def test_twenty_projectors_of_one_journal_count_as_one(tmp_path: Path) -> None:
    store = await Store.open(tmp_path / "ramet.db")
    await store.write(set_up)

    async def projector(step: int) -> None:
        while (start := await store.read(offset)) < len(JOURNAL):
            end = min(start + step, len(JOURNAL))
            try:
                await store.write(lambda unit: project(unit, start, end), lifecycle=bool(step % 2))  # noqa: B023 - awaited here
            except StaleBatchError:
                continue

    await asyncio.gather(*(projector(step) for step in range(1, 21)))
    assert await store.read(projected) == JOURNAL
    await store.aclose()


def test_a_batch_of_an_unknown_agent_is_stale() -> None:
    with a_unit() as (_, unit), pytest.raises(StaleBatchError):
        unit.agents.advance("one", 2, 10, expect_offset=0)


def test_the_record_of_input_has_its_own_offset() -> None:
    with a_unit() as (_, unit):
        unit.agents.advance_stdin("one", 1, 10, expect_offset=0)
        with pytest.raises(StaleBatchError):
            unit.agents.advance_stdin("one", 1, 10, expect_offset=0)
        assert unit.agents.get("one", 1) == an_agent(stdin_offset=10)
