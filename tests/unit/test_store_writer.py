"""Works in transactions: grouped, isolated from each other, and reported in order."""

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from blockbuster import blockbuster_ctx
from rametd.domain.errors import SessionNotFoundError, UnavailableError
from rametd.domain.models import Event, NewEvent
from rametd.store import Reader, Store, Unit
from rametd.store.writer import Pace

from tests.support.eventually import eventually
from tests.support.rows import a_repo, a_session

NEVER = Pace(batch=3600.0, slice=3600.0)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    store = await Store.open(tmp_path / "ramet.db", pace=NEVER)
    yield store
    await store.aclose()


class Gate:
    """Block the writer in a work, so that others queue behind it."""

    def __init__(self, store: Store) -> None:
        self._release = threading.Event()
        self._entered = threading.Event()
        self._task = asyncio.create_task(store.write(self._work))

    def _work(self, _: Unit) -> None:
        self._entered.set()
        assert self._release.wait(30)

    async def entered(self) -> None:
        await asyncio.to_thread(self._entered.wait, 30)

    async def open(self) -> None:
        self._release.set()
        await self._task


def append(kind: str) -> Any:
    return lambda unit: unit.events.append(NewEvent(kind))[0]


def kinds(reader: Reader) -> list[str]:
    return [event.kind for event in reader.events.list()]


def files_in(directory: Path) -> list[str]:
    return sorted(each.name for each in directory.iterdir())


def synchronous(unit: Unit) -> int:
    return int(unit._scope.db.execute("PRAGMA synchronous").fetchone()[0])


async def test_works_that_wait_together_are_committed_together(store: Store) -> None:
    commits: list[Sequence[Event]] = []
    store.subscribe(commits.append)
    gate = Gate(store)
    await gate.entered()
    writes = [asyncio.create_task(store.write(append(f"e{number}"))) for number in range(50)]
    await asyncio.sleep(0)
    await gate.open()
    events = await asyncio.gather(*writes)
    await eventually(lambda: commits)
    assert [event.seq for event in events] == list(range(1, 51))
    assert [len(commit) for commit in commits] == [50]


async def test_a_work_that_raises_is_undone_alone(store: Store) -> None:
    def fails(unit: Unit) -> None:
        unit.repos.upsert(a_repo())
        unit.events.append(NewEvent("undone"))
        unit.sessions.get("nobody")

    commits: list[Sequence[Event]] = []
    store.subscribe(commits.append)
    gate = Gate(store)
    await gate.entered()
    writes = [asyncio.create_task(store.write(each)) for each in (append("before"), fails, append("behind"))]
    await asyncio.sleep(0)
    await gate.open()
    before, failed, behind = await asyncio.gather(*writes, return_exceptions=True)
    await eventually(lambda: commits)
    assert isinstance(failed, SessionNotFoundError)
    assert commits == [(before, behind)]
    assert await store.read(kinds) == ["before", "behind"]
    assert await store.read(lambda reader: reader.repos.list()) == []
    assert isinstance(behind, Event)
    assert behind.seq == 2


async def test_a_work_that_raises_alone_in_its_transaction_is_undone(store: Store) -> None:
    def fails(unit: Unit) -> None:
        unit.repos.upsert(a_repo())
        unit.events.append(*(NewEvent("undone") for _ in range(100)))
        unit.sessions.get("nobody")

    with pytest.raises(SessionNotFoundError):
        await store.write(fails)
    assert (await store.write(append("next"))).seq == 1
    assert await store.read(kinds) == ["next"]
    assert await store.read(lambda reader: reader.repos.list()) == []


async def test_events_wait_and_a_lifecycle_write_sweeps_them_along(store: Store) -> None:
    await store.write(append("first"))
    commits: list[Sequence[Event]] = []
    store.subscribe(commits.append)
    waiting = asyncio.create_task(store.write(append("waits"), lifecycle=False))
    await asyncio.sleep(0)
    assert await store.read(kinds) == ["first"]
    await store.write(append("lifecycle"))
    assert (await waiting).kind == "waits"
    await eventually(lambda: commits)
    assert [[event.kind for event in commit] for commit in commits] == [["waits", "lifecycle"]]


async def test_a_transaction_ends_after_its_slice_and_takes_lines_first(tmp_path: Path) -> None:
    store = await Store.open(tmp_path / "ramet.db", pace=Pace(batch=3600.0, slice=-1.0))  # over after each job
    commits: list[Sequence[Event]] = []
    store.subscribe(commits.append)
    gate = Gate(store)
    await gate.entered()
    prompts = [asyncio.create_task(store.write(append(f"prompt {number}"))) for number in range(3)]
    lines = asyncio.create_task(store.write(append("lines"), lifecycle=False))
    await asyncio.sleep(0)
    await gate.open()
    await asyncio.gather(lines, *prompts)
    await eventually(lambda: len(commits) == 4)
    assert [[event.kind for event in commit] for commit in commits] == [
        *(["lines"], ["prompt 0"], ["prompt 1"], ["prompt 2"])
    ]
    await store.aclose()


async def test_events_of_one_work_are_numbered_in_order_however_many(store: Store) -> None:
    for count in (1, 32, 33, 100):
        events = await store.write(
            lambda unit, count=count: unit.events.append(*(NewEvent(f"e{number}") for number in range(count)))  # type: ignore[misc]
        )
        stored = await store.read(lambda reader, first=events[0].seq: reader.events.list(after_seq=first - 1))  # type: ignore[misc]
        assert list(stored) == list(events)
        assert [event.kind for event in stored] == [f"e{number}" for number in range(count)]


async def test_events_alone_are_committed_after_their_pause(tmp_path: Path) -> None:
    store = await Store.open(tmp_path / "ramet.db", pace=Pace(batch=0.01))
    for number in range(3):
        assert (await store.write(append("event"), lifecycle=False)).seq == number + 1
    await store.aclose()


async def test_only_lifecycle_works_pay_for_the_disk(tmp_path: Path) -> None:
    store = await Store.open(tmp_path / "ramet.db", pace=Pace(batch=0.0))
    found = [await store.write(synchronous, lifecycle=lifecycle) for lifecycle in (True, False, True)]
    assert found == [2, 1, 2]
    await store.aclose()


async def test_the_work_of_a_cancelled_caller_is_completed(store: Store) -> None:
    gate = Gate(store)
    await gate.entered()
    caller = asyncio.create_task(store.write(append("kept")))
    await asyncio.sleep(0)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    await gate.open()
    await store.write(append("next"))
    assert await store.read(kinds) == ["kept", "next"]


async def test_an_unawaited_error_reaches_the_loops_handler(store: Store) -> None:
    heard: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: heard.append(context["exception"]))
    gate = Gate(store)
    await gate.entered()
    caller = asyncio.create_task(store.write(lambda unit: unit.sessions.get("nobody")))
    await asyncio.sleep(0)
    caller.cancel()
    await gate.open()
    await eventually(lambda: heard)
    assert isinstance(heard[0], SessionNotFoundError)


async def test_subscribers_see_every_event_once_and_in_order(store: Store) -> None:
    seen: list[int] = []
    unsubscribe = store.subscribe(lambda events: seen.extend(event.seq for event in events))
    await asyncio.gather(*(store.write(append("event")) for _ in range(200)))
    await eventually(lambda: len(seen) == 200)
    assert seen == list(range(1, 201))
    unsubscribe()
    unsubscribe()
    await store.write(append("unseen"))
    await asyncio.sleep(0)
    assert len(seen) == 200


async def test_a_subscriber_that_raises_does_not_starve_the_others(store: Store) -> None:
    heard: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: heard.append(context["exception"]))
    seen: list[Event] = []

    def broken(_: Sequence[Event]) -> None:
        raise ValueError("a fault of the subscriber's")

    store.subscribe(broken)
    store.subscribe(seen.extend)
    await store.write(append("event"))
    await eventually(lambda: seen and heard)


async def test_a_read_sees_the_last_commit_and_one_commit_only(store: Store) -> None:
    await store.write(append("one"))
    started, go_on = threading.Event(), threading.Event()

    def twice(reader: Reader) -> tuple[list[str], list[str]]:
        first = kinds(reader)
        started.set()
        assert go_on.wait(30)
        return first, kinds(reader)

    reading = asyncio.create_task(store.read(twice))
    await asyncio.to_thread(started.wait, 30)
    await store.write(append("two"))
    assert await store.read(kinds) == ["one", "two"]
    go_on.set()
    assert await reading == (["one"], ["one"])


async def test_closing_does_what_was_submitted_and_refuses_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "ramet.db"
    store = await Store.open(path, pace=NEVER)
    await store.write(append("first"))
    waiting = asyncio.create_task(store.write(append("waits"), lifecycle=False))
    await asyncio.sleep(0)
    await store.aclose()
    assert (await waiting).kind == "waits"
    with pytest.raises(UnavailableError):
        await store.write(append("late"))
    with pytest.raises(UnavailableError):
        await store.read(kinds)
    assert files_in(tmp_path) == ["ramet.db", "ramet.db.id"]
    again = await Store.open(path)
    assert again.epoch == store.epoch
    assert again.quarantined is None
    assert await again.read(kinds) == ["first", "waits"]
    await again.aclose()


async def test_every_run_gets_a_higher_fence(store: Store) -> None:
    fences = [await store.begin_run("instance", 1, "0.1.0") for _ in range(3)]
    assert fences == sorted(set(fences))


async def test_appending_moves_the_sessions_last_event(store: Store) -> None:
    def work(unit: Unit) -> None:
        unit.repos.upsert(a_repo())
        unit.sessions.insert(a_session())
        unit.events.append(NewEvent("a", "one", "repo"), NewEvent("b"), NewEvent("c", "one", "repo"), NewEvent("d"))

    await store.write(work)
    session = await store.read(lambda reader: reader.sessions.get("one"))
    assert (session.last_seq, session.version) == (3, 0)


async def test_the_loop_is_never_blocked(tmp_path: Path) -> None:
    with blockbuster_ctx():
        store = await Store.open(tmp_path / "ramet.db")
        await asyncio.gather(*(store.write(append("event")) for _ in range(50)))
        assert len(await store.read(kinds)) == 50
        await store.aclose()


@pytest.mark.parametrize("way", ["read", "write"])
async def test_work_that_raises_stop_iteration_is_answered_and_blocks_no_other(store: Store, way: str) -> None:
    call = getattr(store, way)
    async with asyncio.timeout(10):
        failed, *others = await asyncio.gather(
            call(lambda _: next(iter(()))), *(call(lambda _: 1) for _ in range(3)), return_exceptions=True
        )
    assert isinstance(failed, RuntimeError)
    assert isinstance(failed.__cause__, StopIteration)
    assert others == [1, 1, 1]
