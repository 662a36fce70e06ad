"""The daemon's side of one running agent: read its lines, write to it, speak its control protocol,
record its end.

This is one class because all of these share a connection and its tasks. A runner has no state that
a crash could lose: it commits each line with its offset, and commits before it writes. The next
daemon continues where this one was killed.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Protocol

import structlog
from ramet.v1 import event_pb2

from rametd.agents.base import (
    Activity,
    AgentKind,
    Answered,
    ControlAsked,
    ControlCancelled,
    ConversationOpened,
    Frame,
    Initialized,
    PromptReturned,
    PromptSeen,
    StartRefused,
    TurnBegan,
    TurnSkipped,
)
from rametd.domain.errors import AgentRefusedError, RametError, SessionNotFoundError, StaleBatchError
from rametd.domain.models import Agent, ControlRequest, Request, Session
from rametd.keeper.executor import Attachment, Handle, JournalLine, Liveness
from rametd.services import events
from rametd.services.agents.clocks import Clocks
from rametd.services.agents.conversation import OPEN_PATIENCE_S, Conversation
from rametd.services.agents.endings import record_end
from rametd.services.agents.outgoing import RELEASE_BYTES, Sender
from rametd.services.agents.projection import Projection
from rametd.services.agents.questions import asks_to_edit, with_edits
from rametd.services.core import Core, Policy
from rametd.services.delivery import deliver
from rametd.services.hooks import SessionHooks
from rametd.services.intake import Intake
from rametd.store import Unit

URGENT = (
    ControlAsked,
    ControlCancelled,
    Initialized,
    PromptReturned,
    PromptSeen,
    TurnBegan,
    TurnSkipped,
    Activity,
    Answered,
    ConversationOpened,
    StartRefused,
)
"""Facts that a person or the agent waits for; a batch with one of them is committed at once."""


@dataclass(frozen=True, slots=True)
class Projected:
    """Result of a batch."""

    session: Session
    agent: Agent
    turn_ended: bool
    notified: tuple[str, ...]  # ids of sessions that it sent a message


def is_urgent(frames: Sequence[Frame]) -> bool:
    """Return whether a batch must be committed at once."""
    return any(isinstance(fact, URGENT) for frame in frames for fact in frame.facts)


def project(unit: Unit, session_id: str, generation: int, frames: Sequence[Frame], policy: Policy) -> Projected:
    """Apply a batch of consecutive frames. Raise `StaleBatchError` if it does not begin at the
    stored offset."""
    unit.agents.advance(session_id, generation, frames[-1].end, expect_offset=frames[0].start)
    agent = unit.agents.get(session_id, generation)
    if agent is None:
        raise AssertionError("an agent that advanced exists")
    projection = Projection(unit, unit.sessions.get(session_id), agent, policy)
    for frame in frames:
        projection.apply(frame)
    projection.flush()
    return Projected(projection.session, projection.agent, projection.turn_ended, tuple(projection.notified))


log = structlog.get_logger()

BACKLOG = 256
"""Most lines read ahead of the store, and so most in one unit of work; beyond that the keeper's
journal buffers."""
BACKLOG_BYTES = 4 << 20
"""The same limit in bytes, since a line may have megabytes."""
LATE_EXIT_GRACE_S = 10.0
"""Seconds in which an agent may finish its turn after its keeper died and its input is closed."""
FAULT_PAUSE_S = 2.0
"""Back-off before reattaching after an internal error."""


@dataclass(frozen=True, slots=True)
class Live:
    """The parts of an attached runner."""

    attachment: Attachment
    sender: Sender
    conversation: Conversation


class Owner(Protocol):
    """What a runner needs of the supervisor."""

    def reattach(self, session_id: str) -> None:
        """Reattach to a living agent."""

    async def after_end(self, session_id: str) -> None:
        """Continue with a session whose agent's end is recorded."""


class Runner:
    """Lives from `start` until the agent's end or `detach`."""

    def __init__(
        self, core: Core, hooks: SessionHooks, intake: Intake, owner: Owner, session: Session, agent: Agent
    ) -> None:
        self.session_id = session.id
        self.generation = agent.generation
        self.ended = asyncio.Event()
        self._core = core
        self._hooks = hooks
        self._intake = intake
        self._owner = owner
        self._kind: AgentKind = core.kind(session.agent)
        self._handle = Handle(agent.handle)
        self._session = session
        self._agent = agent
        self._read = self._kind.reader(agent)
        self._begin = agent.turn_offset if self._kind.rereads else agent.journal_offset
        self._attached: Live | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._faulty: asyncio.Task[None] | None = None
        self.frames: list[Frame] = []  # read, not yet stored
        self._storing = False  # some of them are being stored, here or in the intake
        self._suspect = False  # the intake refused them
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._at_end = False
        self._refusal = ""  # why the agent does not take prompts
        self._released = agent.journal_offset
        self._clocks = Clocks(core, agent, self._spawn, self._follow)
        self._log = log.bind(session=session.id, generation=agent.generation)

    # ── beginning and end ─────────────────────────────────────────────────────────────────────────

    async def start(self) -> None:
        """Attach, and start the tasks that do the rest. Raise what `Executor.attach` raises."""
        core, session_id, generation = self._core, self.session_id, self.generation
        attachment = await core.executor.attach(self._handle, epoch=core.fence, offset=self._begin)
        conversation = Conversation(
            core, self._hooks, self._kind, self._session, self._agent, attachment, self.wake_sender
        )
        sender = Sender(core, self._kind, self._agent, attachment, conversation.ready)
        self._attached = Live(attachment, sender, conversation)
        await sender.reconcile()

        def load(unit: Unit) -> list[ControlRequest]:
            payload = event_pb2.AgentAttached(generation=generation, offset=self._agent.journal_offset)
            events.log(unit, self._session, payload)
            return unit.control.open(session_id, generation)

        for request in await core.store.write_for_sure(load):
            self._feed(self._kind.read(self._agent, 0, 0, request.frame))
        core.live.add(self)
        self._spawn(self._pump(), "pump")
        self._spawn(self._project(), "project")
        self._spawn(sender.run(), "send")
        self._spawn(self._open(), "open")

    @property
    def _live(self) -> Live:
        assert self._attached is not None, "a runner is used once it has started"
        return self._attached

    def _spawn(self, coroutine: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(coroutine, name=f"{name}-{self.session_id}")
        task.add_done_callback(self._task_done)
        self._tasks.append(task)

    def _task_done(self, task: "asyncio.Task[None]") -> None:
        if task in self._tasks:
            self._tasks.remove(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._log.error("runner task failed", task=task.get_name(), exc_info=error)
            self._faulty = asyncio.create_task(self._start_over(), name=f"start-over-{self.session_id}")

    async def _start_over(self) -> None:
        """Detach after an internal error, and let a new runner reattach from the stored state."""
        await asyncio.sleep(FAULT_PAUSE_S)
        await self.detach()
        self._owner.reattach(self.session_id)

    async def detach(self) -> None:
        """Close the connection; the agent keeps running."""
        self._clocks.stop()
        self.frames.clear()  # The next runner reads them again; the intake must not store them meanwhile.
        self._core.live.remove(self)
        current = asyncio.current_task()
        tasks = [task for task in self._tasks if task is not current]
        for task in tasks:
            task.cancel()
        if self._attached is not None:
            await self._attached.conversation.close()
        if tasks:
            await asyncio.wait(tasks)
        if self._attached is not None:
            await self._attached.attachment.close()
        self.ended.set()  # releases callers that wait for the end

    async def end(self, intent: str, grace: float) -> None:
        """End the agent with all its processes; return when the end is stored. Stores ``intent``
        before the first signal."""
        await self._live.conversation.note(stop_intent=intent)
        self._core.failpoint.hit("end.intended")
        await self._core.executor.end(self._handle, grace, epoch=self._core.fence)
        await self.ended.wait()

    # ── lines in ──────────────────────────────────────────────────────────────────────────────────

    async def _pump(self) -> None:
        # Output from the time without a daemon waits in the keepers' journals, so that it does not
        # delay serving.
        await self._core.recovered.wait()
        try:
            async for lines in self._live.attachment:
                await self._read_lines(lines)
                del lines  # the next may come in hours
        except RametError as error:
            # A newer daemon fenced us off, or the keeper broke: this connection delivers nothing
            # more.
            self._log.warning("keeper connection ended", error=error.message)
        finally:
            self._at_end = True
            self._news.set()

    async def _read_lines(self, lines: Sequence[JournalLine]) -> None:
        frames = self.frames
        for line in lines:
            frame = self._read(line.start, line.end, line.data)
            if line.end <= self._agent.journal_offset:
                continue  # stored already; the reader needs it as context
            if frame.event.HasField("background_task"):
                self._find_output(frame.event.background_task)
            if asks_to_edit(frame):
                frame = await with_edits(frame, self._session.worktree)
            frames.append(frame)
            if len(frames) >= BACKLOG or line.end - frames[0].start >= BACKLOG_BYTES:
                self._store_frames()
                self._room.clear()
                await self._room.wait()
        self._store_frames()

    def _find_output(self, task: event_pb2.BackgroundTask) -> None:
        if task.status == "started":
            environment = self._core.daemon_environment
            task.output_file = self._kind.task_output(self._session, task.task_id, environment)

    def _store_frames(self) -> None:
        """Store the frames: those at the front that are calm together with other agents' frames,
        the rest in a separate unit of work.

        In this order also if both are there: when many turns end at one moment, the last words of
        all of them need not wait for the ends of the others.
        """
        if self._storing or not self.frames:
            return
        if self._suspect or not self.frames[0].is_calm:
            self._news.set()
        else:
            self._storing = True
            self._intake.add(self)

    def stored(self, frames: Sequence[Frame]) -> None:
        """See `intake.Source`."""
        self._storing = False
        self._drop(frames)
        if self.frames:
            self._store_frames()
        elif self._at_end:
            self._news.set()

    def refused(self) -> None:
        """See `intake.Source`."""
        self._storing, self._suspect = False, True
        self._news.set()

    def _drop(self, frames: Sequence[Frame]) -> None:
        """Drop the first frames, which are committed."""
        del self.frames[: len(frames)]
        self._room.set()
        offset = self._agent.turn_offset if self._kind.rereads else frames[-1].end
        if offset - self._released >= RELEASE_BYTES:
            self._released = offset
            self._live.attachment.release(offset)

    async def _project(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            if self._storing:
                continue  # `stored` continues
            if not self.frames:
                if self._at_end:
                    break
                continue
            self._storing = True
            try:
                await self._apply()
            except StaleBatchError:
                # Another daemon took over between our read and our commit; it stores what we read.
                self._log.warning("superseded by another daemon")
                return
            except SessionNotFoundError:
                return
            self._storing = self._suspect = False
            self._store_frames()
            if not self.frames:
                self._news.set()  # the agent may have ended meanwhile
        await self._finish()

    async def _apply(self) -> None:
        session_id, generation = self.session_id, self.generation
        urgent = is_urgent(self.frames)
        frames: list[Frame] = []

        def work(unit: Unit) -> Projected:
            # Take the frames when this runs, not when it is submitted: lines that arrived while it
            # waited are included. It runs in the store's thread while the event loop may append;
            # `_drop` removes only committed frames. Work that is not urgent stops before the first
            # urgent line, which needs an urgent commit.
            frames[:] = self.frames[:] if urgent else takewhile(lambda frame: not is_urgent([frame]), self.frames[:])
            return project(unit, session_id, generation, frames, self._core.policy)

        commands = self._agent.background_commands
        projected = await self._core.store.write_for_sure(work, lifecycle=urgent)
        self._session, self._agent = projected.session, projected.agent
        for frame in frames:
            self._feed(frame)
        self._clocks.update(self._session, self._agent)
        for notified in projected.notified:
            self._core.live.wake(notified)
        if projected.turn_ended:
            self._core.live.running_costs.pop(session_id, None)
            self._live.conversation.turn_ended()
            self._hooks.turn_ended(self._session)
            self._core.live.schedule()
        elif self._agent.background_commands != commands:
            self._core.live.schedule()  # a session may wait for the end of a background command
        self._drop(frames)

    @property
    def session(self) -> Session:
        """The session as of the last stored line."""
        return self._session

    def _follow(self, session: Session) -> None:
        self._session = session

    def _feed(self, frame: Frame) -> None:
        if frame.control is not None:
            self._live.conversation.feed(frame.control)

    # ── lines out ─────────────────────────────────────────────────────────────────────────────────

    def wake_sender(self) -> None:
        """Have newly committed lines written to the agent."""
        self._live.sender.wake()

    async def _open(self) -> None:
        """Open the control channel once the daemon serves; reading and storing lines does not need
        it."""
        await self._core.recovered.wait()
        try:
            await self._live.conversation.open()
        except (AgentRefusedError, TimeoutError) as error:
            # It is silent, or its permissions now differ from the session's. Another process may
            # work; after `max_resumes` the session fails, with the reason.
            self._refusal = str(error) or f"it was not ready for prompts within {OPEN_PATIENCE_S:.0f} seconds"
            self._log.error("agent did not become ready", error=self._refusal)
            await self._core.executor.end(self._handle, 1.0, epoch=self._core.fence)
            return
        except RametError as error:
            # The journal has its end, which `_finish` records.
            self._log.warning("agent takes no more", error=error.message)
            return
        session_id = self.session_id
        self._session = await self._core.store.write_for_sure(
            lambda unit: deliver(unit, self._kind, unit.sessions.get(session_id))
        )
        self.wake_sender()
        self._clocks.update(self._session, self._agent)
        self._core.live.schedule()

    async def follow_settings(self) -> None:
        """Set the session's mode and model in the agent. Raise `TimeoutError` if it does not answer
        within seconds."""
        await self._live.conversation.follow_settings()

    async def interrupt(self) -> None:
        """Ask the agent to end its turn; the turn's result confirms it.

        Write the committed prompts first: a prompt that arrives after the interrupt starts another
        turn, instead of being withdrawn.
        """
        await self._live.sender.flush()
        await self._live.conversation.interrupt()

    def answered(self, request: Request) -> None:
        """Pass on a person's committed answer."""
        self._live.conversation.answered(request)

    async def agent_pid(self) -> int:
        """Return the agent's process id, 0 once it has ended."""
        try:
            return int((await self._live.attachment.status())["agent_pid"])
        except RametError:
            return 0

    # ── the agent's end ───────────────────────────────────────────────────────────────────────────

    async def _finish(self) -> None:
        recovered = await self._core.executor.recover(self._handle)
        if recovered.liveness == Liveness.ALIVE:
            # The connection broke, or a newer daemon has the keeper: the agent keeps running.
            await self.detach()
            self._owner.reattach(self.session_id)
            return
        if recovered.liveness != Liveness.EXITED:
            await self._core.executor.end(self._handle, LATE_EXIT_GRACE_S, epoch=self._core.fence)
        tail, max_resumes = self._live.attachment.tail, self._core.config.agents.max_resumes
        await self._core.store.write_for_sure(
            lambda unit: record_end(
                unit,
                self._kind,
                self.session_id,
                self.generation,
                record=recovered.exit,
                stderr_tail=recovered.stderr_tail,
                unterminated=tail,
                refusal=self._refusal,
                max_resumes=max_resumes,
            ),
        )
        await self.detach()
        self.ended.set()
        await self._owner.after_end(self.session_id)
