"""Watchers get every committed event once, in order, at any pace of the reader."""

import asyncio
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rametd.domain.models import Event, NewEvent
from rametd.services import hub as hubs
from rametd.services.hub import Hub, Watcher
from rametd.store import Store

SESSIONS = ("one", "two", "three")


async def append(store: Store, *session_ids: str) -> None:
    await store.write(lambda unit: unit.events.append(*(NewEvent("x", session_id=each) for each in session_ids)))


async def drain(watcher: Watcher, seen: list[Event]) -> None:
    while found := await watcher.next(0.001):
        seen += found


# A step is a batch of events to append, or the end of a reader's pause (None: it reads once).
steps = st.lists(st.none() | st.lists(st.sampled_from(SESSIONS), min_size=1, max_size=6), max_size=25)
choices = st.none() | st.sets(st.sampled_from(SESSIONS), min_size=1)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(before=st.integers(0, 12), after=st.integers(0, 12), wanted=choices, walk=steps, together=st.booleans())
def test_no_event_is_missed_and_none_is_seen_twice(
    monkeypatch: pytest.MonkeyPatch, before: int, after: int, wanted: set[str] | None, walk: list[list[str] | None], together: bool
) -> None:  # fmt: skip
    monkeypatch.setattr(hubs, "BACKLOG", 4)
    monkeypatch.setattr(hubs, "PAGE", 3)

    async def run(directory: Path) -> None:
        store = await Store.open(directory / "ramet.db")
        hub = Hub(store)
        try:
            for number in range(before):
                await append(store, SESSIONS[number % 3])
            after_seq = min(after, before)
            watcher, seen = hub.watch(after_seq, wanted), list[Event]()
            for step in walk:
                if step is None:
                    seen += await watcher.next(0.001)
                elif together:  # the read and the commit race
                    found, _ = await asyncio.gather(watcher.next(0.001), append(store, *step))
                    seen += found
                else:
                    await append(store, *step)
            await drain(watcher, seen)
            stored = await store.read(lambda reader: reader.events.list(after_seq=after_seq))
            assert [event.seq for event in seen] == [
                event.seq for event in stored if wanted is None or event.session_id in wanted
            ]
        finally:
            hub.close()
            await store.aclose()

    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(run(Path(directory)))


async def test_a_reader_that_does_not_read_costs_no_memory(tmp_path: Path) -> None:
    store = await Store.open(tmp_path / "ramet.db")
    hub = Hub(store)
    watcher = hub.watch(0)
    assert await watcher.next(0.001) == []
    for _ in range(10):
        await append(store, *["one"] * 1000)

    assert len(watcher._queue) <= hubs.BACKLOG

    seen: list[Event] = []
    await drain(watcher, seen)
    assert [event.seq for event in seen] == list(range(1, 10_001))
    hub.close()
    await store.aclose()


async def test_a_stalled_reader_holds_no_more_of_long_lines_than_its_limit(tmp_path: Path) -> None:
    store = await Store.open(tmp_path / "ramet.db")
    hub = Hub(store)
    watcher = hub.watch(0)
    assert await watcher.next(0.001) == []
    line = b"x" * (hubs.ROOM // 3)
    for _ in range(5):
        await store.write(lambda unit: unit.events.append(*(NewEvent("x", payload=line, frame=b"y"),) * 3))
        assert sum(event.size for event in watcher._queue) <= hubs.ROOM

    seen: list[Event] = []
    while found := await watcher.next(0.001):
        assert len(found) == 1 or sum(event.size for event in found) <= hubs.ROOM
        seen += found
    assert [event.seq for event in seen] == list(range(1, 16))
    hub.close()
    await store.aclose()


async def test_a_watcher_of_some_kinds_gets_only_these(tmp_path: Path) -> None:
    store = await Store.open(tmp_path / "ramet.db")
    hub = Hub(store)
    watcher = hub.watch(0, kinds=["wanted"])
    kinds = ["wanted", "loud", "loud", "wanted"]
    await store.write(lambda unit: unit.events.append(*map(NewEvent, kinds)))
    stored = await watcher.next(0.001)
    assert await watcher.next(0.001) == []
    await store.write(lambda unit: unit.events.append(*map(NewEvent, kinds)))
    assert [event.seq for event in (*stored, *await watcher.next(1.0))] == [1, 4, 5, 8]
    hub.close()
    await store.aclose()


async def test_a_watcher_that_was_closed_is_offered_nothing(tmp_path: Path) -> None:
    store = await Store.open(tmp_path / "ramet.db")
    hub = Hub(store)
    watcher = hub.watch(0)
    assert await watcher.next(0.001) == []
    watcher.close()
    await append(store, "one")
    assert not watcher._queue
    hub.close()
    await store.aclose()


async def test_a_quiet_session_is_watched_without_its_watcher_falling_behind(tmp_path: Path) -> None:
    """The cursor of an idle watcher follows the log, so that a read does not repeat the events of
    all other sessions."""
    store = await Store.open(tmp_path / "ramet.db")
    hub = Hub(store)
    watcher = hub.watch(0, ["quiet"])
    assert await watcher.next(0.001) == []
    await append(store, *["loud"] * 5000)
    assert await watcher.next(0.001) == []
    assert watcher.seq == 5000
    hub.close()
    await store.aclose()
