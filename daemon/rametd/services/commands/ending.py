"""The ends of commands: their own, that of their time, and those that are asked for."""

import asyncio
from contextlib import suppress

import structlog

from rametd.domain.commands import Command
from rametd.domain.errors import KeeperFencedError, RametError, WrongStateError
from rametd.keeper.executor import Executor, ExitRecord, Handle
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
        """How it ended, None where its keeper was lost; one whose time is over is ended. Raises `KeeperFencedError`."""
        handle, core = Handle(command.handle), self._core
        left = None if command.deadline is None else max(0.0, command.deadline - core.clock())
        while True:
            try:
                try:
                    async with asyncio.timeout(left):
                        record = await self._executor.wait(handle)
                except TimeoutError:
                    await self.note_stop(command.id, "its time was over")
                    record = await self.end(handle, GRACE_S)
                if record is None:
                    # Its keeper was lost: what that held may live on.
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
        """Store why it is ended before it is, unless that is stored already."""

        def work(unit: Unit) -> Command | None:
            command = unit.commands.find(command_id)
            if command is None or not command.living or command.stop_reason:
                return command
            return unit.commands.update(command_id, stop_reason=reason)

        return await write_for_sure(self._core.store, work)

    async def end(self, handle: Handle, grace: float) -> ExitRecord | None:
        """End the whole tree of processes; ``grace`` is seconds."""
        # At once: waiting for it to leave because its stdin is closed, as an agent does, would be in vain.
        with suppress(WrongStateError):
            await self._executor.signal(handle, "SIGTERM", epoch=self._core.fence)
        return await self._executor.end(handle, grace, epoch=self._core.fence)

    async def destroy(self, handle: Handle) -> None:
        """End what a keeper holds, and remove its directory."""
        try:
            await self._executor.end(handle, REMOVAL_GRACE_S, epoch=self._core.fence)
            await self._executor.destroy(handle)
        except (RametError, OSError) as error:
            log.warning("what a command left stays", handle=handle, error=str(error))
