"""Outputs of commands, and their ends: by themselves, by their time limit, or by request."""

import asyncio
import codecs
from collections.abc import AsyncIterator
from contextlib import suppress

import structlog
from google.protobuf.message import Message
from ramet.v1 import event_pb2

from rametd.domain.commands import Command, CommandKind
from rametd.domain.errors import KeeperFencedError, NotFoundError, RametError, WrongStateError
from rametd.keeper.executor import Executor, ExitRecord, Handle, JournalLine
from rametd.services import events
from rametd.services.core import Core
from rametd.services.persistence import write_for_sure
from rametd.store import Unit

log = structlog.get_logger()

GRACE_S = 3.0
REMOVAL_GRACE_S = 1.0
RETRY_S = 1.0


class Ender:
    def __init__(self, core: Core, executor: Executor) -> None:
        self._core = core
        self._executor = executor

    async def await_end(self, command: Command) -> ExitRecord | None:
        """Wait for the end of a command, and end it at its deadline. Return None if its keeper was lost. Raises `KeeperFencedError`."""
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
                    # Its keeper was lost, but its processes may live.
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

        return await write_for_sure(self._core.store, work)

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
"""Bytes of an output that become events; `rametctl run --logs` shows all of it."""
CHUNK = 64 << 10
TICK_S = 0.2
"""How often to read the output of a running command that is followed."""


class Outputs:
    def __init__(self, core: Core, executor: Executor) -> None:
        self._core = core
        self._executor = executor

    async def pieces(self, handle: Handle, offset: int, ended: asyncio.Event) -> AsyncIterator[JournalLine]:
        """Yield the output from ``offset`` on, as far as its keeper has it, until ``ended`` is set and all is read."""
        while True:
            # Test this before reading, so that this round reads everything that was written before the end.
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
            text = f"… more: rametctl run S --logs {command.id}\n" if too_much else decoder.decode(piece.data)
            output = event_pb2.CommandOutput(command_id=command.id, text=text, offset=piece.start)

            def work(unit: Unit, output: event_pb2.CommandOutput = output, end: int = piece.end) -> None:
                if unit.commands.find(command.id) is not None:
                    unit.commands.update(command.id, reported_bytes=end)
                    log_command(unit, command, output)

            await write_for_sure(self._core.store, work, lifecycle=False)
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
