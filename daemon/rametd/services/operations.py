"""The runner of operations: at most one task for each session and kind, and recovery after a kill
of the daemon.

An operation has a row from its first step to its last (`store.operations`). `Operations.run` runs
it in a task of its own, which continues if the caller hangs up, and which other callers join; its
``complete`` may find any step done already. `Operations.within` runs it in the caller's task, and
undoes it if that fails or is cancelled.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import structlog

from rametd.domain.errors import RametError, WrongStateError
from rametd.domain.models import Session
from rametd.domain.operations import Caller, Kind, Operation, Recovery
from rametd.failpoints import Failpoint
from rametd.services.ids import new_id
from rametd.services.lifecycle import refuse_attached
from rametd.store import Reader, Store, Unit, load_session


def new_operation(kind: Kind, session_id: str, caller: Caller, **data: str) -> Operation:
    """Create an operation, which is not stored yet."""
    return Operation(
        id=new_id(),
        kind=kind,
        session_id=session_id,
        request_id=caller.request_id,
        principal=caller.principal,
        method=caller.method,
        digest=caller.digest,
        data=data,
    )


def refuse_busy(reader: Reader, session: Session) -> None:
    """Raise `WrongStateError` while an exclusive operation has the session."""
    if (found := reader.operations.exclusive(session.id)) is not None:
        raise busy_error(session.name, found)


def refuse_other(reader: Reader, session_id: str, name: str, kind: Kind) -> None:
    """The same, except for operations of one ``kind``."""
    if (found := reader.operations.exclusive(session_id)) is not None and found.kind != kind:
        raise busy_error(name, found)


def busy_error(name: str, operation: Operation) -> WrongStateError:
    return WrongStateError(f"{name} is {operation.doing}", hint="wait until that is done, then try again")


def refuse_landing(reader: Reader, session: Session, branch: str = "") -> None:
    """Raise `WrongStateError` while a merge queue moves the session's branch, or ``branch``, on
    which it is being restored."""
    moved = (session.repo_id, branch or session.branch)
    for operation in reader.operations.list(kinds=(Kind.LAND,)):
        if (operation.data["repo"], operation.data["target"]) == moved:
            raise WrongStateError(f"work is landing on {moved[1]}", hint="try again in a moment")


def holder_of(reader: Reader, repo_id: str, branch: str) -> Operation | None:
    """The exclusive operation of the session that has a branch, or is about to get it."""
    for operation in reader.operations.all_exclusive():
        if operation.kind == Kind.RESTORE:
            session = load_session(operation.data["session"])
            found = (session.repo_id, operation.data["branch"])
        elif (here := reader.sessions.find(operation.session_id)) is not None:
            found = (here.repo_id, here.branch)
        else:
            continue
        if found == (repo_id, branch):
            return operation
    return None


def session_of(reader: Reader, operation: Operation) -> Session | None:
    """The session, or the removed session that the operation restores or drops."""
    session = reader.sessions.find(operation.session_id)
    if session is None and "session" in operation.data:
        return load_session(operation.data["session"])
    if session is None and (entry := reader.trash.get(operation.session_id)) is not None:
        return load_session(entry.session)
    return session


def name_of(reader: Reader, operation: Operation) -> str:
    session = session_of(reader, operation)
    return session.name if session is not None else operation.session_id


def unfinished(operation: Operation) -> str:
    """Why a failed operation, which waits for a retry, could not be finished; "" for a running
    one."""
    return f"its {operation.traits.noun} could not be finished: {operation.failed}" if operation.failed else ""


log = structlog.get_logger()

T = TypeVar("T")

PATIENCE_S = 0.8
"""Seconds that a start waits for the recovery of all operations; one takes a fifth of a second."""

Carry = Callable[[Operation], Awaitable[Any]]
Undo = Callable[[Operation, BaseException | None], Awaitable[None]]
Admit = Callable[[Unit, Operation | None], None]


@dataclass(frozen=True, slots=True)
class Handler:
    """Functions of one kind.

    ``complete`` does the work and returns the answer. ``undo`` gets the error of ``complete`` (None
    in a recovery), and undoes the operation or stores that it failed. ``recover`` runs in the next
    daemon.
    """

    complete: Carry | None
    undo: Undo
    recover: Carry


@dataclass(frozen=True, slots=True)
class _Running:
    operation: Operation
    task: "asyncio.Task[Any]"


class Operations:
    """Register all kinds by `handle` before calling `recover`."""

    def __init__(self, store: Store, failpoint: Failpoint) -> None:
        self._store = store
        self._failpoint = failpoint
        self._handlers: dict[Kind, Handler] = {}
        self._running: dict[tuple[str, Kind], _Running] = {}
        self._detached: set[asyncio.Task[Any]] = set()
        self.recovering: set[str] = set()
        """Sessions with an unfinished operation of a former daemon."""

    def handle(self, kind: Kind, undo: Undo, complete: Carry | None = None, recover: Carry | None = None) -> None:
        """Register a kind. ``recover`` is by default ``complete`` if given, else ``undo``."""

        async def take_back(operation: Operation) -> None:
            await undo(operation, None)

        self._handlers[kind] = Handler(complete, undo, recover or complete or take_back)

    # ── running ───────────────────────────────────────────────────────────────────────────────────

    async def run(self, wanted: Operation, admit: Admit) -> Any:
        """Run an operation, or join a running one of the same kind and session; return its answer.

        ``admit`` may refuse the operation in the unit of work that stores it. Its argument is the
        failed operation that this one retries, else None. Raises `WrongStateError` while another
        operation has the session, and what the operation raises.
        """
        handler = self._handlers[wanted.kind]
        assert handler.complete is not None

        def begin(unit: Unit) -> Operation:
            found = unit.operations.exclusive(wanted.session_id) if wanted.traits.exclusive else None
            if found is not None and (found.kind != wanted.kind or not found.agrees_with(wanted)):
                raise busy_error(name_of(unit, found), found)
            if wanted.traits.exclusive and (session := unit.sessions.find(wanted.session_id)) is not None:
                refuse_attached(unit, session)
            admit(unit, found)
            return unit.operations.take_over(found, wanted.caller) if found else unit.operations.begin(wanted)

        async def carry_out() -> Any:
            operation = await self._store.write(begin)
            self._failpoint.hit(f"{operation.kind}.intended")
            return await self._attempt(operation, handler.complete)

        running = self._running.get((wanted.session_id, wanted.kind))
        if running is not None and not running.operation.agrees_with(wanted):
            name = await self._store.read(lambda reader: name_of(reader, running.operation))
            raise busy_error(name, running.operation)
        return await asyncio.shield((running or self._start(wanted, carry_out)).task)

    async def resume(self, operation: Operation) -> Any:
        """Resume an operation of a former daemon, in its own task."""
        recover = self._handlers[operation.kind].recover
        running = self._running.get((operation.session_id, operation.kind))
        running = running or self._start(operation, lambda: self._attempt(operation, recover))
        return await asyncio.shield(running.task)

    @asynccontextmanager
    async def within(self, operation: Operation, begin: Callable[[Unit], object] | None = None) -> AsyncIterator[None]:
        """Run an operation in the caller's task. ``begin`` or the body stores it, and the body
        finishes it. Any failure undoes it."""
        try:
            if begin is not None:
                await self._store.write(begin)
            yield
        except BaseException as error:  # also cancellation, even while the operation is being stored
            await asyncio.shield(self._handlers[operation.kind].undo(operation, error))
            raise

    async def idle(self, kind: Kind) -> None:
        """Wait until no operation of a kind runs."""
        if tasks := [each.task for key, each in self._running.items() if key[1] == kind]:
            await asyncio.wait(tasks)

    async def detached(self, work: Coroutine[Any, Any, T]) -> T:
        """Run ``work`` in a task that continues if the caller hangs up."""
        task = asyncio.create_task(work)
        self._detached.add(task)
        task.add_done_callback(self._detached.discard)
        return await asyncio.shield(task)

    async def settled(self, request_id: str) -> None:
        """Wait until no operation of this call runs. A former daemon, or a caller that hung up, may
        have started one."""
        tasks = [each.task for each in self._running.values() if each.operation.request_id == request_id]
        if request_id and tasks:
            await asyncio.wait(tasks)

    def _start(self, operation: Operation, carry: Callable[[], Awaitable[Any]]) -> _Running:
        async def run() -> Any:
            return await carry()

        key = (operation.session_id, operation.kind)
        task = asyncio.create_task(run(), name=f"{operation.kind}-{operation.session_id}")
        running = self._running[key] = _Running(operation, task)
        task.add_done_callback(lambda _: self._running.pop(key, None))
        return running

    async def _attempt(self, operation: Operation, carry: Carry | None) -> Any:
        assert carry is not None
        try:
            return await carry(operation)
        except Exception as error:  # whatever failed: no other task ends this operation before the next start
            await self._handlers[operation.kind].undo(operation, error)
            raise

    # ── recovery ──────────────────────────────────────────────────────────────────────────────────

    async def recover(self, left_over: Callable[[str], Awaitable[None]]) -> frozenset[str]:
        """Complete or undo the operations of a killed daemon. Return the sessions whose operation
        takes longer.

        The caller must not attach agents of these yet: ``left_over`` is called with each session
        once its operation has ended.
        """
        found = await self._store.read(lambda reader: reader.operations.list())
        for operation in found:
            if operation.traits.recovery == Recovery.FIRST:
                await self._recover(operation)
        tasks = {
            asyncio.create_task(self._recover(operation), name=f"recover-{operation.session_id}"): operation.session_id
            for operation in found
            if operation.traits.recovery == Recovery.BESIDE
        }
        if not tasks:
            return frozenset()
        _, late = await asyncio.wait(tasks, timeout=PATIENCE_S)
        self.recovering = {tasks[task] for task in late}

        async def see_through(task: asyncio.Task[None], session_id: str) -> None:
            await task
            self.recovering.discard(session_id)
            await left_over(session_id)

        for task in late:
            each = asyncio.create_task(see_through(task, tasks[task]))
            self._detached.add(each)
            each.add_done_callback(self._detached.discard)
        return frozenset(self.recovering)

    async def _recover(self, operation: Operation) -> None:
        """Recover one operation. Never raises: a failure must not prevent the start."""
        log.info("recovering", kind=operation.kind, session=operation.session_id, step=operation.step)
        try:
            await self.resume(operation)
        except RametError as error:
            log.error("operation not recovered", kind=operation.kind, session=operation.session_id, error=error.message)
        except Exception as error:
            # A damaged repository, or a defect of Ramet: the daemon must start anyway.
            log.error("operation not recovered", kind=operation.kind, session=operation.session_id, exc_info=error)

    async def close(self) -> None:
        """Cancel all operations; the next daemon recovers them."""
        tasks = [*self._detached, *(each.task for each in self._running.values())]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
