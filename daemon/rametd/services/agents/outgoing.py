"""Lines for one agent. Each is committed before it is written, and marked as sent once the keeper
has it; the order stays."""

import asyncio

import structlog

from rametd.agents.base import AgentKind
from rametd.domain.errors import RametError
from rametd.domain.models import Agent, OutgoingKind
from rametd.keeper.executor import Attachment
from rametd.services.core import Core
from rametd.store import Unit

log = structlog.get_logger()

RELEASE_BYTES = 1 << 20
"""Number of written bytes after which the daemon has the keeper rotate its record of the agent's
input."""


class Sender:
    """Writes the outbox of one process; prompts wait until ``ready`` is set."""

    def __init__(self, core: Core, kind: AgentKind, agent: Agent, attachment: Attachment, ready: asyncio.Event) -> None:
        self._core = core
        self._kind = kind
        self._session_id, self._generation = agent.session_id, agent.generation
        self._attachment = attachment
        self._ready = ready
        self._news = asyncio.Event()
        self._calm = asyncio.Event()  # all lines are written that were committed before the last `wake`
        self._closed = False
        self._offset = agent.stdin_offset
        self._released = agent.stdin_offset

    def wake(self) -> None:
        """Look for newly committed lines."""
        self._calm.clear()
        self._news.set()

    async def flush(self) -> None:
        """Return once all committed lines are written, or the agent takes no more."""
        if not self._closed:
            self.wake()
            await self._calm.wait()

    async def reconcile(self) -> None:
        """Find in the keeper's record the lines that a killed daemon wrote without marking them as
        sent."""
        pending = await self._pending()
        written = await self._attachment.written_since(self._offset)
        if not written:
            return
        lines = {line.data for line in written}
        await self._note([number for number, _, line in pending if line in lines], written[-1].end)

    async def _pending(self) -> list[tuple[int, OutgoingKind, bytes]]:
        """Return number, kind and bytes of each unsent line. Values that the process reported at
        its start complete a prompt."""
        session_id, generation = self._session_id, self._generation
        pending, agent = await self._core.store.read(
            lambda reader: (reader.outbox.pending(session_id, generation), reader.agents.get(session_id, generation))
        )
        return [
            (
                each.id,
                each.kind,
                self._kind.outgoing(agent, each.line) if agent and each.kind == OutgoingKind.PROMPT else each.line,
            )
            for each in pending
        ]

    async def run(self) -> None:
        """Write committed lines until the agent's input closes."""
        try:
            while True:
                self._news.clear()
                if not await self._write_pending():
                    return
                if not self._news.is_set():
                    self._calm.set()
                await self._news.wait()  # for lines that were committed since the read too
        finally:
            self._closed = True
            self._calm.set()

    async def _write_pending(self) -> bool:
        """Write the committed lines; return False if the agent takes no more. It holds none of them
        after its return: the next may be hours away."""
        for number, kind, line in await self._pending():
            if kind == OutgoingKind.PROMPT and not self._ready.is_set():
                await self._ready.wait()
                self._news.set()
                break  # only a ready process has reported what completes a prompt
            self._core.failpoint.hit(f"{kind}.committed")
            try:
                end = await self._attachment.write(line)
            except RametError as error:
                log.warning("agent takes no more", session=self._session_id, error=error.message)
                return False
            self._core.failpoint.hit(f"{kind}.written")
            await self._note([number], end)
        return True

    async def _note(self, outgoing: list[int], end: int) -> None:
        """Mark lines as sent. ``end`` is the end of the keeper's record, from which `reconcile`
        continues to read."""
        session_id, generation, since = self._session_id, self._generation, self._offset

        def work(unit: Unit) -> None:
            unit.outbox.mark_written(outgoing)
            unit.agents.advance_stdin(session_id, generation, end, expect_offset=since)

        await self._core.store.write_for_sure(work, lifecycle=False)
        self._offset = end
        if end - self._released >= RELEASE_BYTES:
            self._released = end
            self._attachment.release_stdin(end)
