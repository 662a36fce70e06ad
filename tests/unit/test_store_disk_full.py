"""A full disk, simulated by a limit on the database's pages: read-only, reported, and ended without
a restart."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from rametd.domain.errors import ReadOnlyError
from rametd.domain.models import NewEvent
from rametd.store import Reader, Store, Unit
from rametd.store.writer import Pace

from tests.support.eventually import eventually

LARGE = b"x" * 200_000


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def store(tmp_path: Path, clock: Clock) -> AsyncIterator[Store]:
    store = await Store.open(tmp_path / "ramet.db", clock=clock)
    yield store
    await store.aclose()


def cap(unit: Unit) -> None:
    db = unit._scope.db
    (pages,) = db.execute("PRAGMA page_count").fetchone()
    db.execute(f"PRAGMA max_page_count = {pages + 4}")


def uncap(unit: Unit) -> None:
    unit._scope.db.execute("PRAGMA max_page_count = 1000000")


def append_large(unit: Unit) -> None:
    unit.events.append(NewEvent("small"), NewEvent("large", payload=LARGE))


def kinds(reader: Reader) -> list[str]:
    return [event.kind for event in reader.events.list()]


async def test_no_text_is_torn_and_reading_continues(store: Store, clock: Clock) -> None:
    reports: list[bool] = []
    store.on_read_only = reports.append
    await store.write(lambda unit: unit.events.append(NewEvent("before")))
    await store.write(cap)
    with pytest.raises(ReadOnlyError, match="full") as refused:
        await store.write(append_large)
    assert refused.value.hint
    assert (store.read_only, reports) == (True, [True])
    assert await store.read(kinds) == ["before"]

    clock.now += 1
    await store.write(uncap)
    assert (store.read_only, reports) == (False, [True, False])
    await store.write(append_large)
    assert await store.read(kinds) == ["before", "small", "large"]
    events = await store.read(lambda reader: reader.events.list())
    assert [event.seq for event in events] == [1, 2, 3]


async def test_writing_is_tried_once_in_a_second(store: Store, clock: Clock) -> None:
    tries = 0

    def work(unit: Unit) -> None:
        nonlocal tries
        tries += 1
        append_large(unit)

    await store.write(cap)
    for _ in range(5):
        with pytest.raises(ReadOnlyError):
            await store.write(work)
    assert tries == 1
    clock.now += 1
    with pytest.raises(ReadOnlyError):
        await store.write(work)
    assert tries == 2
    clock.now -= 3600  # a clock set back does not stretch the pause
    with pytest.raises(ReadOnlyError):
        await store.write(work)
    assert tries == 3


async def test_it_ends_without_writers(tmp_path: Path) -> None:
    store = await Store.open(tmp_path / "ramet.db", pace=Pace(retry=0.02))
    await store.write(cap)
    with pytest.raises(ReadOnlyError):
        await store.write(append_large)
    await eventually(lambda: not store.read_only)
    await store.aclose()


async def test_all_works_of_a_transaction_get_the_error(store: Store) -> None:
    """A work that failed for another reason gets the error too: its reads may have been rolled
    back."""
    await store.write(cap)

    def fails(unit: Unit) -> None:
        unit.sessions.get("nobody")

    waiting = asyncio.create_task(store.write(append_large, lifecycle=False))
    failing = asyncio.create_task(store.write(fails, lifecycle=False))
    with pytest.raises(ReadOnlyError):
        await waiting
    with pytest.raises(ReadOnlyError):
        await failing
