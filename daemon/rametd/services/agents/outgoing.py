"""Lines owed to one agent: committed first, written in order, noted once the keeper has them."""

import asyncio

import structlog

from rametd.domain.errors import RametError
from rametd.domain.models import Agent, OutgoingKind
from rametd.keeper.executor import Attachment
from rametd.services.core import Core
from rametd.services.persistence import write_for_sure
from rametd.store import Unit

log = structlog.get_logger()

RELEASE_BYTES = 1 << 20
"""The keeper's record is released to be rotated in steps of this."""


class Sender:
    """Writes what the outbox holds for one process; prompts wait until ``ready`` is set."""

    def __init__(self, core: Core, agent: Agent, attachment: Attachment, ready: asyncio.Event) -> None:
        self._core = core
        self._session_id, self._generation = agent.session_id, agent.generation
        self._attachment = attachment
        self._ready = ready
        self._news = asyncio.Event()
        self._offset = agent.stdin_offset
        self._released = agent.stdin_offset

    def wake(self) -> None:
        """Something was committed to be written."""
        self._news.set()

    async def reconcile(self) -> None:
        """Learn from the keeper's record which lines a killed daemon had written but not noted."""
        session_id, generation, since = self._session_id, self._generation, self._offset
        pending = await self._core.store.read(lambda reader: reader.outbox.pending(session_id, generation))
        written = await self._attachment.written_since(since)
        if not written:
            return
        lines = {line.data for line in written}
        await self._note([each.id for each in pending if each.line in lines], written[-1].end)

    async def run(self) -> None:
        """Write until the agent takes no more. A line leaves only once it is committed."""
        session_id, generation = self._session_id, self._generation
        while True:
            self._news.clear()
            pending = await self._core.store.read(lambda reader: reader.outbox.pending(session_id, generation))
            for line in pending:
                if line.kind == OutgoingKind.PROMPT:
                    await self._ready.wait()
                self._core.failpoint.hit(f"{line.kind}.committed")
                try:
                    end = await self._attachment.write(line.line)
                except RametError as error:
                    log.warning("agent takes no more", session=session_id, error=error.message)
                    return
                self._core.failpoint.hit(f"{line.kind}.written")
                await self._note([line.id], end)
            if not pending:
                await self._news.wait()

    async def _note(self, outgoing: list[int], end: int) -> None:
        """Lines are in the keeper's record, which ends at ``end``: what lies before needs no second look."""
        session_id, generation, since = self._session_id, self._generation, self._offset

        def work(unit: Unit) -> None:
            unit.outbox.mark_written(outgoing)
            unit.agents.advance_stdin(session_id, generation, end, expect_offset=since)

        await write_for_sure(self._core.store, work, lifecycle=False)
        self._offset = end
        if end - self._released >= RELEASE_BYTES:
            self._released = end
            self._attachment.release_stdin(end)
