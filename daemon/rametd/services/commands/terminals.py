"""Commands in worktrees. Each has a keeper, outlives the daemon, and ends with all its processes.

The daemon stores the row, starts the keeper, then records in the row that the command runs. A
daemon that finds a row without a running keeper repeats the start, which joins an earlier one. It
ends a keeper without a row. The keeper records how the command ended.
"""

import asyncio
import codecs
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from weakref import WeakValueDictionary

import structlog
from google.protobuf.message import Message
from ramet.v1 import event_pb2

from rametd.domain.commands import Command, CommandKind, CommandState
from rametd.domain.errors import KeeperFencedError, NotFoundError, RametError, WrongStateError
from rametd.domain.models import DAEMON, Event, Repo, Session
from rametd.domain.operations import Kind
from rametd.domain.states import State
from rametd.keeper.executor import Executor, ExitRecord, Handle, JournalLine, LaunchSpec
from rametd.keeper.place import Place
from rametd.services import environments, events
from rametd.services.core import Core
from rametd.services.ids import ALPHABET, LENGTH, new_id
from rametd.services.operations import busy_error
from rametd.services.tasks import Tasks
from rametd.services.views import command_message
from rametd.store import Reader, Unit

GRACE_S = 3.0
REMOVAL_GRACE_S = 1.0
RETRY_S = 1.0


class Ender:
    def __init__(self, core: Core, executor: Executor) -> None:
        self._core = core
        self._executor = executor

    async def await_end(self, command: Command) -> ExitRecord | None:
        """Wait for the end of a command, and end it at its deadline. Return None if its keeper was
        lost. Raises `KeeperFencedError`."""
        handle, core = Handle(command.handle), self._core
        left = None if command.deadline is None else max(0.0, command.deadline - core.clock())
        while True:
            try:
                try:
                    async with asyncio.timeout(left):
                        record = await self._executor.wait(handle)
                except TimeoutError:
                    await self.note_stop(command.id, "it timed out")
                    record = await self.end(handle, GRACE_S)
                if record is None:
                    # The keeper is lost, but processes of the command may live.
                    record = await self._executor.end(handle, REMOVAL_GRACE_S, epoch=core.fence)
            except KeeperFencedError:
                raise
            except RametError as error:
                log.warning("a command cannot be ended now", command=command.id, error=error.message)
                await asyncio.sleep(RETRY_S)
                left = 0.0
            else:
                return record

    async def note_stop(self, command_id: str, reason: str) -> Command | None:
        """Store why a command is ended, before ending it; the first reason stays."""

        def work(unit: Unit) -> Command | None:
            command = unit.commands.find(command_id)
            if command is None or not command.living or command.stop_reason:
                return command
            return unit.commands.update(command_id, stop_reason=reason)

        return await self._core.store.write_for_sure(work)

    async def end(self, handle: Handle, grace: float) -> ExitRecord | None:
        """End all processes of a command; ``grace`` is seconds."""
        # Signal at once: unlike an agent, a command does not exit because its stdin is closed.
        with suppress(WrongStateError):
            await self._executor.signal(handle, "SIGTERM", epoch=self._core.fence)
        return await self._executor.end(handle, grace, epoch=self._core.fence)

    async def destroy(self, handle: Handle) -> None:
        """End all processes of a keeper, and remove its directory."""
        try:
            await self._executor.end(handle, REMOVAL_GRACE_S, epoch=self._core.fence)
            await self._executor.destroy(handle)
        except (RametError, OSError) as error:
            log.warning("the directory of a command was not removed", handle=handle, error=str(error))


TOLD_BYTES = 1 << 20
"""Maximum number of bytes of an output that become events; `rametctl run --logs` shows all of
it."""
CHUNK = 64 << 10
TICK_S = 0.2
"""How often to read the output of a running command that is followed."""


class Outputs:
    def __init__(self, core: Core, executor: Executor) -> None:
        self._core = core
        self._executor = executor

    async def pieces(self, handle: Handle, offset: int, ended: asyncio.Event) -> AsyncIterator[JournalLine]:
        """Yield the output from ``offset`` on, as far as its keeper has it, until ``ended`` is set
        and all is read."""
        while True:
            # Test this before reading: the round then reads everything that was written before the
            # end.
            over = ended.is_set()
            with suppress(NotFoundError):
                while (piece := await self._executor.read(handle, offset, CHUNK)).data:
                    offset = piece.end
                    yield piece
            if over:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(TICK_S):
                    await ended.wait()

    async def tell(self, command: Command, ended: asyncio.Event) -> None:
        """Log the output of a setup, teardown or check as events, each byte once, up to a limit."""
        if command.kind == CommandKind.RUN or not (command.session_id or command.kind == CommandKind.CHECK):
            return
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        async for piece in self.pieces(Handle(command.handle), command.reported_bytes, ended):
            too_much = piece.end > TOLD_BYTES
            text = f"… more: rametctl run SESSION --logs {command.id}\n" if too_much else decoder.decode(piece.data)
            output = event_pb2.CommandOutput(command_id=command.id, text=text, offset=piece.start)

            def work(unit: Unit, output: event_pb2.CommandOutput = output, end: int = piece.end) -> None:
                if unit.commands.find(command.id) is not None:
                    unit.commands.update(command.id, reported_bytes=end)
                    log_command(unit, command, output)

            await self._core.store.write_for_sure(work, lifecycle=False)
            if too_much:
                return

    async def size(self, handle: Handle) -> int:
        """Size of the output in bytes; 0 if it was deleted."""
        try:
            return await self._executor.written(handle)
        except NotFoundError:
            return 0

    async def tail(self, handle: Handle, size: int) -> str:
        """The last ``size`` bytes."""
        try:
            end = await self._executor.written(handle)
            piece = await self._executor.read(handle, max(0, end - size), size)
        except NotFoundError:
            return ""
        return piece.data.decode("utf-8", "replace")


def log_command(unit: Unit, command: Command, payload: Message) -> None:
    unit.events.append(
        events.make(payload, session_id=command.session_id, repo_id=command.repo_id, principal=command.principal)
    )


Remember = Callable[[Unit, Command], None]


def remember_nothing(unit: Unit, command: Command) -> None:
    """Store nothing else."""


@dataclass(frozen=True, slots=True)
class NewCommand:
    """A command to run. ``timeout`` is seconds. ``environment`` is added to the session's; without
    a session it is complete.

    A second request with the same ``request_id`` is the same command. ``remember`` runs in the unit
    of work that stores that the command runs.
    """

    argv: tuple[str, ...]
    kind: CommandKind = CommandKind.RUN
    name: str = ""
    timeout: float | None = None
    digest: str = ""
    principal: str = DAEMON
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    request_id: str = ""
    remember: Remember = remember_nothing


def draft(now: float, new: NewCommand, tree: Path, session_id: str, repo_id: str) -> Command:
    """The row of a command that starts ``now`` in the worktree ``tree``; ``session_id`` is ""
    without a session."""
    return Command(
        id=_id_of(new.request_id) if new.request_id else new_id(),
        session_id=session_id,
        repo_id=repo_id,
        kind=new.kind,
        name=new.name,
        argv=new.argv,
        directory=tree,
        state=CommandState.STARTING,
        handle="",
        pid=0,
        exit_status="",
        stop_reason="",
        deadline=None if new.timeout is None else now + new.timeout,
        reported_bytes=0,
        output_bytes=0,
        digest=new.digest,
        principal=new.principal,
        start_time=now,
        end_time=None,
    )


def _id_of(request_id: str) -> str:
    digest = hashlib.sha256(request_id.encode()).digest()
    letters = [ALPHABET[byte % len(ALPHABET)] for byte in digest[: 2 * LENGTH]]
    return ALPHABET[digest[-1] % 24] + "".join(letters[1:])


log = structlog.get_logger()

SEGMENT_BYTES = 1 << 20
KEPT_BYTES = 16 << 20
"""Maximum number of bytes of an output that its keeper stores: the last ones."""
KEPT_COMMANDS = 20
"""Maximum number of ended commands of a session in the store."""
WRAPPED = ("/bin/sh", "-c", 'exec "$@" </dev/null 2>&1', "sh")
"""Standard input is empty. Standard error joins standard output, in the order of the writes."""


class Terminals:
    """Owns all commands. ``executor`` is for commands only."""

    def __init__(self, core: Core, executor: Executor) -> None:
        self._core = core
        self._executor = executor
        self._outputs = Outputs(core, executor)
        self._ender = Ender(core, executor)
        self._starting: dict[str, asyncio.Task[Command]] = {}
        self._watches = Tasks("command")
        self._background = Tasks("commands")
        self._tidy: Callable[[Command, float | None], Awaitable[None]] | None = None
        self._endings: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  # by session
        self._sweeping = asyncio.Lock()
        self._unsubscribe = core.store.subscribe(self._notice)

    def bind(self, tidy: Callable[[Command, float | None], Awaitable[None]]) -> None:
        """Call ``tidy`` after the end of each check of a session, before recording that end, and
        again after a kill; with the time of the end, None if it is unknown. It runs for one check
        of a session at a time. It must not raise, or the end is not recorded.
        """
        self._tidy = tidy

    # ── starting ──────────────────────────────────────────────────────────────────────────────────

    async def start(self, session: Session, new: NewCommand) -> Command:
        """Start a command in the session's worktree. Raises `WrongStateError` while an operation
        has it, `WorkingDirectoryError`."""
        command = draft(self._core.clock(), new, session.worktree, session.id, session.repo_id)

        def insert(unit: Unit) -> Command:
            if new.kind != CommandKind.TEARDOWN:
                _refuse_busy(unit, unit.sessions.get(session.id))
            return unit.commands.find(command.id) or unit.commands.insert(command)

        command = await self._core.store.write(insert)
        self._core.failpoint.hit("command.intended")
        if command.state != CommandState.STARTING:
            return command  # a repeated request
        return await self._begin(command, new.remember, new.environment)

    async def start_apart(self, tree: Path, repo: Repo, new: NewCommand) -> Command:
        """Start a command in a worktree without a session. The next daemon ends it, since its
        caller is gone."""
        command = draft(self._core.clock(), new, tree, "", repo.id)
        await self._core.store.write(lambda unit: unit.commands.insert(command))
        return await self._begin(command, new.remember, new.environment)

    async def _begin(self, command: Command, remember: Remember, more: Mapping[str, str]) -> Command:
        # Start it in a task: a caller that hangs up does not interrupt the start.
        task = self._starting.get(command.id)
        if task is None:
            task = self._starting[command.id] = asyncio.create_task(self._launch(command, remember, more))
            task.add_done_callback(lambda _: self._starting.pop(command.id, None))
        return await asyncio.shield(task)

    async def _launch(self, command: Command, remember: Remember, more: Mapping[str, str]) -> Command:
        core = self._core
        try:
            variables = await self._environment(command, more)
            handle = await self._executor.start(
                LaunchSpec(
                    session_id=command.id,
                    generation=0,
                    argv=(*WRAPPED, *command.argv),
                    cwd=command.directory,
                    environment=variables,
                    cgroup=core.cgroup_of(command.id),
                    segment_bytes=SEGMENT_BYTES,
                    keep_bytes=KEPT_BYTES,
                )
            )
        except RametError:
            await core.store.write_for_sure(lambda unit: unit.commands.remove(command.id))
            raise
        core.failpoint.hit("command.started")
        run = await asyncio.to_thread(Place.from_handle(handle).run)

        def started(unit: Unit) -> Command:
            running = unit.commands.update(
                command.id, state=CommandState.RUNNING, handle=handle, pid=run["agent_pid"] if run else 0
            )
            log_command(unit, running, event_pb2.CommandStarted(command=command_message(unit, running)))
            remember(unit, running)
            return running

        command = await core.store.write_for_sure(started)
        self._watch(command)
        return command

    async def _environment(self, command: Command, more: Mapping[str, str]) -> dict[str, str]:
        core = self._core
        if not command.session_id:
            return dict(more)
        session, repo = await core.store.read(
            lambda reader: (reader.sessions.get(command.session_id), reader.repos.get(command.repo_id))
        )
        return await environments.for_command(core, session, repo, more)

    # ── until its end ─────────────────────────────────────────────────────────────────────────────

    def _watch(self, command: Command) -> None:
        self._watches.start(command.id, self._see_through(command))

    async def _see_through(self, command: Command) -> None:
        ended = asyncio.Event()
        telling = asyncio.create_task(self._outputs.tell(command, ended))
        try:
            record = await self._ender.await_end(command)
            ended.set()
            await telling
        except KeeperFencedError as error:
            log.warning("superseded by another daemon", command=command.id, error=error.message)
            return
        finally:
            telling.cancel()
        if self._tidy is None or command.kind != CommandKind.CHECK or not command.session_id:
            await self._record(command, record)
            return
        # Handle ended checks one after another: of several that end at the same time, all but the
        # last find another one running.
        async with self._endings.setdefault(command.session_id, asyncio.Lock()):
            await self._tidy(command, record.ended_at if record is not None else None)
            await self._record(command, record)

    async def _record(self, command: Command, record: ExitRecord | None) -> None:
        handle = Handle(command.handle)
        size = await self._outputs.size(handle)

        def work(unit: Unit) -> list[str]:
            before = unit.commands.find(command.id)
            if before is None or not before.living:
                return []
            state = CommandState.STOPPED if before.stop_reason else CommandState.EXITED
            now = unit.commands.update(
                command.id,
                state=CommandState.LOST if record is None else state,
                exit_status=record.status if record is not None else "",
                output_bytes=size,
                end_time=unit.now if record is None else record.ended_at,
            )
            log_command(unit, now, event_pb2.CommandEnded(command=command_message(unit, now)))
            known = unit.commands.ids()
            unit.commands.prune(command.session_id, KEPT_COMMANDS)
            return sorted(known - unit.commands.ids())

        if await self._core.store.write_for_sure(work):
            await self.sweep()

    # ── for callers ───────────────────────────────────────────────────────────────────────────────

    async def get(self, command_id: str) -> Command:
        return await self._core.store.read(lambda reader: reader.commands.get(command_id))

    async def wait(self, command_id: str) -> Command:
        """Wait for the end of a command; return it."""
        while (task := self._starting.get(command_id) or self._watches.get(command_id)) is not None:
            await asyncio.wait([task])
        return await self.get(command_id)

    async def output(self, command_id: str, offset: int, *, follow: bool) -> AsyncIterator[JournalLine]:
        """Yield the output from ``offset`` on, as far as its keeper has it; with ``follow`` until
        the command ends."""
        if (starting := self._starting.get(command_id)) is not None:
            await asyncio.wait([starting])
        command = await self.get(command_id)
        ended = asyncio.Event()
        task = self._watches.get(command_id)
        if task is None or not follow:
            ended.set()
        else:
            task.add_done_callback(lambda _: ended.set())
        async for piece in self._outputs.pieces(Handle(command.handle), offset, ended):
            yield piece

    async def tail(self, command: Command, size: int) -> str:
        """The last ``size`` bytes of the output."""
        return await self._outputs.tail(Handle(command.handle), size)

    async def stop(self, command_id: str, reason: str, *, grace: float = GRACE_S) -> Command:
        """End a command with all its processes, and wait for the end; nothing happens if it has
        ended."""
        if (starting := self._starting.get(command_id)) is not None:
            await asyncio.wait([starting])
        command = await self._ender.note_stop(command_id, reason)
        if command is not None and command.living:
            await self._ender.end(Handle(command.handle), grace)
        return await self.wait(command_id)

    async def end_all(self, session_id: str, reason: str, *, kind: CommandKind | None = None) -> None:
        """End all commands of a session, or those of one kind."""
        living = await self._core.store.read(lambda reader: reader.commands.living(session_id))
        wanted = (command for command in living if kind in {None, command.kind})
        stops = (self.stop(command.id, reason, grace=REMOVAL_GRACE_S) for command in wanted)
        for outcome in await asyncio.gather(*stops, return_exceptions=True):
            if isinstance(outcome, NotFoundError):
                continue  # its start failed meanwhile
            if isinstance(outcome, BaseException):
                raise outcome

    async def forget(self, command: Command) -> None:
        """Delete an ended command with its output."""
        await self._core.store.write_for_sure(lambda unit: unit.commands.remove(command.id))
        await self._ender.destroy(Handle(command.handle))

    # ── over restarts ─────────────────────────────────────────────────────────────────────────────

    async def recover(self) -> None:
        """Watch the commands of a former daemon. End those without a session or a row."""
        core = self._core
        await core.store.write_for_sure(lambda unit: unit.commands.remove_sessionless())
        for command in await core.store.read(lambda reader: reader.commands.living()):
            if command.state == CommandState.RUNNING:
                self._watch(command)
                if command.stop_reason:
                    self._background.start(command.id, self._finish_stop(command))
            else:
                self._background.start(command.id, self._start_again(command))
        await self.sweep()

    async def _finish_stop(self, command: Command) -> None:
        await self.stop(command.id, command.stop_reason)

    async def _start_again(self, command: Command) -> None:
        try:
            await self._begin(command, remember_nothing, {})
        except RametError as error:
            log.warning("a command could not be started", command=command.id, error=error.message)

    async def sweep(self) -> None:
        """Delete rows of removed sessions; end all commands without a row and remove their
        directories."""

        def known(unit: Unit) -> frozenset[str]:
            unit.commands.remove_orphaned()
            return unit.commands.ids()

        async with self._sweeping:
            # List the directories first: a command's row is stored before its directory exists.
            handles = await asyncio.to_thread(self._executor.discover)
            ids = await self._core.store.write_for_sure(known)
            strays = [handle for handle in handles if Place.from_handle(handle).session not in ids]
            await asyncio.gather(*map(self._ender.destroy, strays))

    async def close(self) -> None:
        """Stop watching; commands continue under their keepers."""
        self._unsubscribe()
        for task in self._starting.values():
            task.cancel()
        self._watches.cancel()
        await self._background.close()
        await self._watches.close()
        await asyncio.gather(*self._starting.values(), return_exceptions=True)

    def _notice(self, happened: Sequence[Event]) -> None:
        if any(event.kind == "session_removed" for event in happened):
            self._background.start("sweep", self.sweep())


def _refuse_busy(reader: Reader, session: Session) -> None:
    """Raise `WrongStateError` while an exclusive operation has the session, except at the end of a
    restore, when its worktree exists."""
    found = reader.operations.exclusive(session.id)
    if found is not None and not (found.kind == Kind.RESTORE and session.state != State.ARCHIVED):
        raise busy_error(session.name, found)
