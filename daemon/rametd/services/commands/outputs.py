"""What commands write: read from their keepers' directories, followed, and told as events."""

import asyncio
import codecs
from collections.abc import AsyncIterator
from contextlib import suppress

from google.protobuf.message import Message
from ramet.v1 import event_pb2

from rametd.domain.commands import Command, CommandKind
from rametd.domain.errors import NotFoundError
from rametd.keeper.executor import Executor, Handle, JournalLine
from rametd.services import events
from rametd.services.core import Core
from rametd.services.persistence import write_for_sure
from rametd.store import Unit

TOLD_BYTES = 1 << 20
"""Of a command's output that become events; the rest is in its own."""
CHUNK = 64 << 10
TICK_S = 0.2
"""How often the output of a command that runs is looked at, while somebody follows it."""


class Outputs:
    def __init__(self, core: Core, executor: Executor) -> None:
        self._core = core
        self._executor = executor

    async def pieces(self, handle: Handle, offset: int, ended: asyncio.Event) -> AsyncIterator[JournalLine]:
        """From ``offset`` on, as far as it is kept, until ``ended`` is set and all is out."""
        while True:
            # Looked at before the output is: what was written until the end is then read in this round.
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
        """Put the output of a setup, teardown or check into the log of events, each byte once, up to a limit."""
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
        """Bytes that were written; 0 where nothing is left."""
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
