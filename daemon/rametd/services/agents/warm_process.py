"""One warm agent: its process, and the control channel that starts and configures it."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import structlog

from rametd.agents.base import (
    Channel,
    ControlAsked,
    Decision,
    Frame,
    Initialized,
    Judged,
    Launch,
    Opening,
    Question,
    ToolUse,
)
from rametd.domain.errors import AgentRefusedError, RametError
from rametd.domain.models import Session
from rametd.keeper.executor import Attachment, Handle
from rametd.services.core import Core
from rametd.services.hooks import AgentTools
from rametd.services.index import agent_of

log = structlog.get_logger()

GENERATION = 0
"""Generation of a spare's process; no session's own process has it."""
READY_WITHIN_S = 55.0
CONFIGURED_WITHIN_S = 5.0
"""Time limit for a ready process to be configured; a slower one is not worth the wait."""


@dataclass(frozen=True, slots=True)
class Handover:
    """A process handed over to a session, read and written up to the offsets."""

    handle: Handle
    journal_offset: int
    stdin_offset: int
    initialize_reply: bytes
    hook_table: str


class WarmProcess:
    """One process with its control channel, and the `ChannelIO` of that channel, which handles only
    the handshake: there is no prompt yet."""

    def __init__(
        self,
        core: Core,
        tools: AgentTools,
        session: Session,
        launch: Launch,
        version: str,
        handle: Handle,
        known: Mapping[str, str],
    ) -> None:
        self.session = session
        self.launch = launch
        self.version = version
        self.handle = handle
        self.ended = asyncio.Event()
        self._configured = (dict(known), session.mode, session.model)
        self._configuring = asyncio.Lock()
        self._core = core
        self._tools = tools
        self._kind = core.kind(session.agent)
        self._agent = agent_of(session, GENERATION, handle)
        self._attachment: Attachment | None = None
        self._channel: Channel | None = None
        self._pump: asyncio.Task[None] | None = None
        self._unanswered: dict[str, int] = {}  # control request → offset of its line
        self._read = 0
        self._written = 0
        self._reply = b""
        self._hook_table = ""

    async def open(self) -> None:
        """Return when it takes prompts. Raise what `Executor.attach` raises, and `TimeoutError`."""
        await self._kind.prepare()
        self._attachment = await self._core.executor.attach(self.handle, epoch=self._core.fence, offset=0)
        self._channel = self._kind.channel(self._agent, self)
        self._pump = asyncio.create_task(self._listen(), name=f"warm-{self.session.id}")
        async with asyncio.timeout(READY_WITHIN_S):
            await self._channel.open()
            # The first call takes a fifth of a second; spend it before a session waits.
            await self._channel.set_variables(self._configured[0])

    async def _listen(self) -> None:
        assert self._attachment is not None
        assert self._channel is not None
        try:
            async for lines in self._attachment:
                for line in lines:
                    self._hear(self._channel, self._kind.read(self._agent, line.start, line.end, line.data))
        except RametError as error:
            log.warning("warm agent", session=self.session.id, error=error.message)
        finally:
            self.ended.set()

    def _hear(self, channel: Channel, frame: Frame) -> None:
        for fact in frame.facts:
            match fact:
                case ControlAsked(id=control_id):
                    self._unanswered[control_id] = frame.start
                case Initialized(reply=reply):
                    self._reply = reply
        self._read = frame.end
        if frame.control is not None:
            channel.feed(frame.control)

    async def configure(self, session: Session, around: Mapping[str, str]) -> None:
        """Set the session's variables, mode and model where they differ. Raise `TimeoutError`, and
        what the keeper raises."""
        channel = self._channel
        assert channel is not None
        async with asyncio.timeout(CONFIGURED_WITHIN_S), self._configuring:
            variables, mode, model = self._configured
            if around != variables:
                await channel.set_variables(around)
            if session.mode != mode:
                await channel.set_mode(session.mode)
            if session.model != model:
                await channel.set_model(session.model)
            self._configured = (dict(around), session.mode, session.model)

    async def release(self) -> Handover:
        """Detach and hand the process over. The session's runner reads unanswered requests
        again."""
        await self.close()
        offset = min(self._unanswered.values(), default=self._read)
        return Handover(self.handle, offset, self._written, self._reply, self._hook_table)

    async def close(self) -> None:
        if self._pump is not None:
            self._pump.cancel()
            await asyncio.wait([self._pump])
        if self._channel is not None:
            await self._channel.close()
        if self._attachment is not None:
            await self._attachment.close()

    # ── ChannelIO ─────────────────────────────────────────────────────────────────────────────────

    async def write(self, line: bytes) -> None:
        assert self._attachment is not None
        self._written = max(self._written, await self._attachment.write(line))

    async def answer(self, control_id: str, line: bytes) -> None:
        await self.write(line)
        self._unanswered.pop(control_id, None)

    async def opening(self) -> Opening:
        raise AgentRefusedError("there is no session yet")

    async def enqueue(self, ref: str, line: bytes) -> None:
        await self.write(line)

    async def ask(self, control_id: str, question: Question) -> None:
        """Open no request: `decide` refuses."""

    async def interrupting(self) -> None:
        """No turn runs."""

    async def decide(self, control_id: str) -> Decision:
        return Decision(allow=False, message="There is no session yet.")

    async def guard(self, use: ToolUse) -> Judged:
        return Judged("deny", "There is no session yet.")

    async def judge_result(self, use: ToolUse) -> str:
        return ""

    async def notice(self) -> str:
        return ""

    async def prompt(self, words: str) -> None:
        """There is no session yet."""

    async def use_tools(self, control_id: str, message: Mapping[str, Any]) -> dict[str, Any] | None:
        return await self._tools.use(self.session.id, f"{self.session.id}:{GENERATION}:{control_id}", message)

    def failed(self, error: BaseException) -> None:
        log.error("control channel of a warm agent", session=self.session.id, exc_info=error)

    async def initialized(self, hook_table: str) -> None:
        self._hook_table = hook_table
