"""The runner of operations: joining, refusals, callers that hang up, failures and kills."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from rametd.domain.errors import GitFailedError, WrongStateError
from rametd.domain.operations import KINDS, Caller, Kind, Operation, Recovery
from rametd.failpoints import Failpoint
from rametd.services.operations import Operations, new_operation
from rametd.store import Store, Unit

from tests.support.rows import a_repo, a_session

CALL = Caller("owner", "the call", "ArchiveSession", b"digest")


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    store = await Store.open(tmp_path / "ramet.db")
    try:
        await store.write(lambda unit: (unit.repos.upsert(a_repo()), unit.sessions.insert(a_session())))
        yield store
    finally:
        await store.aclose()


class Work:
    """A kind of operation that waits at a gate, and then answers or fails."""

    def __init__(self, store: Store, kind: Kind = Kind.ARCHIVE) -> None:
        self.store, self.kind = store, kind
        self.begun, self.gate = asyncio.Event(), asyncio.Event()
        self.runs = 0
        self.undone: list[str] = []
        self.error: Exception | None = None
        self.operations = Operations(store, Failpoint())
        self.operations.handle(kind, self._undo, self._complete)

    async def _complete(self, operation: Operation) -> str:
        self.runs += 1
        self.begun.set()
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        await self.store.write(lambda unit: unit.operations.finish(operation, b"answer"))
        return "answer"

    async def _undo(self, operation: Operation, error: BaseException | None) -> None:
        self.undone.append(str(error))
        await self.store.write(lambda unit: unit.operations.undo(operation.id))

    def ask(self, caller: Caller = CALL, **data: str) -> "asyncio.Task[str]":
        wanted = new_operation(self.kind, "one", caller, **data)
        return asyncio.create_task(self.operations.run(wanted, lambda unit, failed: None))


async def left(store: Store) -> list[Kind]:
    return [each.kind for each in await store.read(lambda reader: reader.operations.list())]


async def test_a_caller_that_hangs_up_does_not_stop_it_and_a_second_one_joins(store: Store) -> None:
    work = Work(store)
    first = work.ask()
    await work.begun.wait()
    first.cancel()
    await asyncio.wait([first])
    second = work.ask(Caller("owner", "another call"))
    work.gate.set()

    assert await second == "answer"
    assert (first.cancelled(), work.runs, await left(store)) == (True, 1, [])
    answer = await store.read(lambda reader: reader.calls.get("the call"))
    assert answer is not None
    assert answer.response == b"answer"


async def test_the_same_call_waits_until_what_it_began_is_over(store: Store) -> None:
    work = Work(store)
    first = work.ask()
    await work.begun.wait()
    first.cancel()
    settled = asyncio.create_task(work.operations.settled("the call"))
    await work.operations.settled("another call")
    assert not settled.done()
    work.gate.set()
    await settled
    assert await store.read(lambda reader: reader.calls.get("the call")) is not None


async def test_one_that_wants_something_else_is_refused(store: Store) -> None:
    work = Work(store, Kind.REWIND)
    first = work.ask(checkpoint="1")
    await work.begun.wait()
    with pytest.raises(WrongStateError, match="one is being rewound"):
        await work.ask(checkpoint="2")
    work.gate.set()
    assert await first == "answer"


@pytest.mark.parametrize("other", [kind for kind in Kind if kind != Kind.ARCHIVE])
async def test_only_an_exclusive_operation_keeps_another_kind_off_its_session(store: Store, other: Kind) -> None:
    await store.write(lambda unit: unit.operations.begin(new_operation(other, "one", Caller("owner"))))
    work = Work(store)
    work.gate.set()
    if KINDS[other].exclusive:
        with pytest.raises(WrongStateError, match=f"one is being {KINDS[other].doing}"):
            await work.ask()
        assert await left(store) == [other]
    else:
        assert await work.ask() == "answer"


async def test_what_is_not_admitted_is_not_stored(store: Store) -> None:
    work = Work(store)

    def refuse(unit: Unit, failed: Operation | None) -> None:
        raise WrongStateError("not now")

    with pytest.raises(WrongStateError, match="not now"):
        await work.operations.run(new_operation(Kind.ARCHIVE, "one", CALL), refuse)
    assert (work.runs, await left(store)) == (0, [])


@pytest.mark.parametrize("error", [GitFailedError("git says no"), OSError("the disk says no")])
async def test_what_fails_is_undone_and_can_be_begun_anew(store: Store, error: Exception) -> None:
    work = Work(store)
    work.gate.set()
    work.error = error
    with pytest.raises(type(error)):
        await work.ask()
    assert (work.undone, await left(store)) == ([str(error)], [])
    work.error = None
    assert await work.ask() == "answer"


async def test_a_daemon_that_ends_leaves_it_to_the_next_which_completes_it(store: Store) -> None:
    killed = Work(store)
    asked = killed.ask()
    await killed.begun.wait()
    await killed.operations.close()
    await asyncio.wait([asked])
    assert (killed.undone, await left(store)) == ([], [Kind.ARCHIVE])

    work = Work(store)
    work.gate.set()
    assert await work.operations.recover(_nobody) == frozenset()
    assert (work.runs, await left(store)) == (1, [])
    assert await store.read(lambda reader: reader.calls.get("the call")) is not None


async def test_a_long_recovery_runs_beside_calls_and_reports_its_end(store: Store) -> None:
    await store.write(lambda unit: unit.operations.begin(new_operation(Kind.ARCHIVE, "one", CALL)))
    work, over = Work(store), asyncio.Event()

    async def note(session_id: str) -> None:
        over.set()

    assert await work.operations.recover(note) == {"one"} == work.operations.recovering
    joined = work.ask()
    work.gate.set()
    await over.wait()
    assert await joined == "answer"
    assert (work.runs, work.operations.recovering) == (1, set())


@pytest.mark.parametrize("error", [GitFailedError("git says no"), OSError("the disk says no")])
async def test_a_recovery_that_fails_keeps_no_daemon_from_its_start(store: Store, error: Exception) -> None:
    await store.write(lambda unit: unit.operations.begin(new_operation(Kind.ARCHIVE, "one", CALL)))
    work = Work(store)
    work.gate.set()
    work.error = error
    assert await work.operations.recover(_nobody) == frozenset()
    assert (work.undone, await left(store)) == ([str(error)], [])


@pytest.mark.parametrize("kind", Kind)
async def test_each_kind_is_recovered_when_its_row_of_the_table_says(store: Store, kind: Kind) -> None:
    await store.write(lambda unit: unit.operations.begin(new_operation(kind, "one", CALL)))
    work = Work(store, kind)
    work.gate.set()
    await work.operations.recover(_nobody)
    assert work.runs == (0 if KINDS[kind].recovery == Recovery.BY_OWNER else 1)


async def test_what_runs_within_its_caller_is_undone_with_it(store: Store) -> None:
    work = Work(store, Kind.CREATE)
    operation = new_operation(Kind.CREATE, "two", CALL)
    begun = asyncio.Event()

    async def create() -> None:
        async with work.operations.within(operation, lambda unit: unit.operations.begin(operation)):
            begun.set()
            await asyncio.Event().wait()

    creating = asyncio.create_task(create())
    await begun.wait()
    assert await left(store) == [Kind.CREATE]
    creating.cancel()
    await asyncio.wait([creating])
    assert await left(store) == []


async def _nobody(session_id: str) -> None:
    pass
