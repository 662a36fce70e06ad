"""The one runner of operations: at most one task for each session and kind, and recovery after a daemon that was killed.

An operation is a row from its first step to its last (`store.operations`). Two ways to carry one out:

* `Operations.run`: in a task of its own. A caller that hangs up does not stop it, and another one joins it. The kind's ``complete`` may find any step done.
* `Operations.within`: in the caller's task. What fails in it, or is cancelled, is undone.
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
    """An operation that is not stored yet."""
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
    """Raises `WrongStateError` while an exclusive operation has the session."""
    if (found := reader.operations.exclusive(session.id)) is not None:
        raise busy_error(session.name, found)


def refuse_other(reader: Reader, session_id: str, name: str, kind: Kind) -> None:
    """The same, but for an operation of one ``kind``."""
    if (found := reader.operations.exclusive(session_id)) is not None and found.kind != kind:
        raise busy_error(name, found)


def busy_error(name: str, operation: Operation) -> WrongStateError:
    return WrongStateError(f"{name} is {operation.doing}", hint="wait until that is done, then try again")


def refuse_landing(reader: Reader, session: Session, branch: str = "") -> None:
    """Raises `WrongStateError` while a merge queue moves the session's branch, or the ``branch`` that it is to be restored on, and its files with that."""
    moved = (session.repo_id, branch or session.branch)
    for operation in reader.operations.list(kinds=(Kind.LAND,)):
        if (operation.data["repo"], operation.data["target"]) == moved:
            raise WrongStateError(f"work is landing on {moved[1]} at this moment", hint="try again")


def holder_of(reader: Reader, repo_id: str, branch: str) -> Operation | None:
    """The exclusive operation of the session that has a branch checked out, or is about to."""
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
    """The session as it is, or as it is to be restored."""
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
    """Why a failed operation waits to be tried again; "" for one that is under way."""
    return f"its {operation.traits.noun} could not be finished: {operation.failed}" if operation.failed else ""


log = structlog.get_logger()

T = TypeVar("T")

PATIENCE_S = 0.8
"""How long a start waits for the operations that it recovers, all together; one takes a fifth of a second."""

Carry = Callable[[Operation], Awaitable[Any]]
Undo = Callable[[Operation, BaseException | None], Awaitable[None]]
Admit = Callable[[Unit, Operation | None], None]


@dataclass(frozen=True, slots=True)
class Handler:
    """What one kind does.

    ``complete`` carries it out and returns its answer; it raises nothing but what ``undo`` can deal with. ``undo`` gets what was raised (None at a recovery) and
    takes the operation back, or leaves it as one that failed. ``recover`` is what the next daemon does.
    """

    complete: Carry | None
    undo: Undo
    recover: Carry


@dataclass(frozen=True, slots=True)
class _Running:
    operation: Operation
    task: "asyncio.Task[Any]"


class Operations:
    """Register every kind by `handle` before `recover`."""

    def __init__(self, store: Store, failpoint: Failpoint) -> None:
        self._store = store
        self._failpoint = failpoint
        self._handlers: dict[Kind, Handler] = {}
        self._running: dict[tuple[str, Kind], _Running] = {}
        self._detached: set[asyncio.Task[Any]] = set()
        self.recovering: set[str] = set()
        """Sessions whose operation a former daemon began, and this one is still busy with."""

    def handle(self, kind: Kind, undo: Undo, complete: Carry | None = None, recover: Carry | None = None) -> None:
        """Register a kind; without ``recover`` the next daemon completes what can be completed, and undoes the rest."""

        async def take_back(operation: Operation) -> None:
            await undo(operation, None)

        self._handlers[kind] = Handler(complete, undo, recover or complete or take_back)

    # ── carrying out ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def run(self, wanted: Operation, admit: Admit) -> Any:
        """Carry out an operation, or join the one of its kind that is under way for its session; return its answer.

        ``admit`` may refuse it, in the unit of work that stores it. It gets the operation that failed before and is tried again, None for a new one. Raises
        `WrongStateError` while another operation has the session, and what the operation raises.
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
        """Go on with an operation that a former daemon began, in its task."""
        recover = self._handlers[operation.kind].recover
        running = self._running.get((operation.session_id, operation.kind))
        running = running or self._start(operation, lambda: self._attempt(operation, recover))
        return await asyncio.shield(running.task)

    @asynccontextmanager
    async def within(self, operation: Operation, begin: Callable[[Unit], object] | None = None) -> AsyncIterator[None]:
        """Carry out an operation in the caller's task: ``begin``, or the body, stores it, and the body ends it. Whatever fails, be it ``begin``, is undone."""
        try:
            if begin is not None:
                await self._store.write(begin)
            yield
        except BaseException as error:  # also a caller that hangs up, be it while the operation is being stored
            await asyncio.shield(self._handlers[operation.kind].undo(operation, error))
            raise

    async def idle(self, kind: Kind) -> None:
        """Wait until no operation of a kind is under way."""
        if tasks := [each.task for key, each in self._running.items() if key[1] == kind]:
            await asyncio.wait(tasks)

    async def detached(self, work: Coroutine[Any, Any, T]) -> T:
        """Do ``work`` in a task that a caller who hangs up does not stop."""
        task = asyncio.create_task(work)
        self._detached.add(task)
        task.add_done_callback(self._detached.discard)
        return await asyncio.shield(task)

    async def settled(self, request_id: str) -> None:
        """Wait until no operation of this call is under way: a former daemon, or a call whose caller hung up, may have begun it."""
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
        except Exception as error:  # whatever it is: no other task would end this operation before the next start
            await self._handlers[operation.kind].undo(operation, error)
            raise

    # ── recovery ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def recover(self, left_over: Callable[[str], Awaitable[None]]) -> frozenset[str]:
        """Complete or undo what a killed daemon had begun. Returns the sessions whose operation goes on after a moment.

        Of these no agent may be taken up yet: ``left_over`` is awaited with each once its operation is over.
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
        """Never raises: an operation that cannot be finished must not keep all others from being served."""
        log.info("recovering", kind=operation.kind, session=operation.session_id, step=operation.step)
        try:
            await self.resume(operation)
        except RametError as error:
            log.error("cannot be finished", kind=operation.kind, session=operation.session_id, error=error.message)
        except Exception as error:
            # A damaged repository, or a fault of ours: a daemon that does not start serves nobody.
            log.error("cannot be finished", kind=operation.kind, session=operation.session_id, exc_info=error)

    async def close(self) -> None:
        """Stop: the next daemon finds the operations."""
        tasks = [*self._detached, *(each.task for each in self._running.values())]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
