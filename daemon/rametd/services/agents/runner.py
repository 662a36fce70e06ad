"""One running agent, from the daemon's side: reads its lines, writes what is owed to it, speaks its control protocol, notices its end.

One class: its beginning, its lines and its end are steps of one life, over the same connection and the same tasks.
A runner holds nothing that a crash could lose: what it reads is committed with its offset, what it writes was committed before. Another daemon
begins where this one was killed.
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
from rametd.keeper.executor import Attachment, Handle, Liveness
from rametd.services import events
from rametd.services.agents.clocks import Clocks
from rametd.services.agents.conversation import Conversation
from rametd.services.agents.endings import record_end
from rametd.services.agents.outgoing import RELEASE_BYTES, Sender
from rametd.services.agents.projection import Projection
from rametd.services.agents.questions import asks_to_edit, with_edits
from rametd.services.core import Core
from rametd.services.delivery import deliver
from rametd.services.hooks import SessionHooks
from rametd.services.intake import Intake
from rametd.services.persistence import write_for_sure
from rametd.services.policy import Policy
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
"""Facts that somebody waits for; a batch with one of them is committed at once."""


@dataclass(frozen=True, slots=True)
class Projected:
    """What a batch has led to."""

    session: Session
    agent: Agent
    turn_ended: bool
    told: tuple[str, ...]  # ids of sessions that were told something by it


def is_urgent(frames: Sequence[Frame]) -> bool:
    """Whether a batch must not wait for company."""
    return any(isinstance(fact, URGENT) for frame in frames for fact in frame.facts)


def project(unit: Unit, session_id: str, generation: int, frames: Sequence[Frame], policy: Policy) -> Projected:
    """Apply a batch of consecutive frames; raises `StaleBatchError` when it does not begin at the stored offset."""
    unit.agents.advance(session_id, generation, frames[-1].end, expect_offset=frames[0].start)
    agent = unit.agents.get(session_id, generation)
    if agent is None:
        raise AssertionError("an agent that advanced exists")
    projection = Projection(unit, unit.sessions.get(session_id), agent, policy)
    for frame in frames:
        projection.apply(frame)
    projection.flush()
    return Projected(projection.session, projection.agent, projection.turn_ended, tuple(projection.told))


log = structlog.get_logger()

BACKLOG = 256
"""Lines read ahead of the store, and so in one unit of work at most; beyond them the keeper's journal is the buffer."""
BACKLOG_BYTES = 4 << 20
"""The same for their bytes, as a line may have megabytes."""
LATE_EXIT_GRACE_S = 10.0
"""An agent that outlived its keeper has lost its input and is finishing its turn; it gets this long to do so."""
FAULT_PAUSE_S = 2.0
"""How long an agent rests from a daemon that has failed over it, so that a fault that comes again does not come in a loop."""


@dataclass(frozen=True, slots=True)
class Live:
    """What there is of a runner once it is attached."""

    attachment: Attachment
    sender: Sender
    conversation: Conversation


class Owner(Protocol):
    """Whoever goes on where a runner ends: the supervisor."""

    def reattach(self, session_id: str) -> None:
        """Attach again to a living agent."""

    async def after_end(self, session_id: str) -> None:
        """Go on with a session whose agent's end is recorded."""


class Runner:
    """From `start` until the agent's end or `detach`."""

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
        self._storing = False  # some of them, here or in the intake
        self._suspect = False  # the intake has refused them
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._at_end = False
        self._released = agent.journal_offset
        self._clocks = Clocks(core, agent, self._spawn, self._follow)
        self._log = log.bind(session=session.id, generation=agent.generation)

    # ── beginning and end ────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def start(self) -> None:
        """Attach; everything else goes on in tasks. Raises what `Executor.attach` raises."""
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

        for request in await write_for_sure(core.store, load):
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
        """Something of this runner failed that should not have: let go, and let another one take the agent up from what is stored."""
        await asyncio.sleep(FAULT_PAUSE_S)
        await self.detach()
        self._owner.reattach(self.session_id)

    async def detach(self) -> None:
        """Let go of the agent, which lives on."""
        self._clocks.stop()
        self.frames.clear()  # read again by whoever takes the agent up next: the intake must not store them behind its back
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
        self.ended.set()  # whoever waits for the end has nothing to wait for here any more

    async def end(self, intent: str, grace: float) -> None:
        """End the agent with all its processes, and return when that is on record. ``intent`` is stored before the first signal."""
        await self._live.conversation.note(stop_intent=intent)
        self._core.failpoint.hit("end.intended")
        await self._core.executor.end(self._handle, grace, epoch=self._core.fence)
        await self.ended.wait()

    # ── lines in ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _pump(self) -> None:
        # What agents said while there was no daemon must not keep a new one from serving; it waits in the keepers' journals.
        await self._core.recovered.wait()
        frames = self.frames
        try:
            async for lines in self._live.attachment:
                for line in lines:
                    frame = self._read(line.start, line.end, line.data)
                    if line.end <= self._agent.journal_offset:
                        continue  # stored already; the reader needs it for what follows
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
        except RametError as error:
            # Fenced by a newer daemon, or the keeper broke: either way nothing more comes over this connection.
            self._log.warning("keeper connection ended", error=error.message)
        finally:
            self._at_end = True
            self._news.set()

    def _find_output(self, task: event_pb2.BackgroundTask) -> None:
        if task.status == "started":
            environment = self._core.daemon_environment
            task.output_file = self._kind.task_output(self._session, task.task_id, environment)

    def _store_frames(self) -> None:
        """Have the frames stored: with those of other agents where all are calm, else in a work of their own."""
        if self._storing or not self.frames:
            return
        if self._suspect or not all(frame.is_calm for frame in self.frames):
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
        """Forget the first frames, which are committed."""
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
                continue  # `stored` sees to what follows
            if not self.frames:
                if self._at_end:
                    break
                continue
            self._storing = True
            try:
                await self._apply()
            except StaleBatchError:
                # Another daemon took over between our read and our commit: what we read is its to store.
                self._log.warning("superseded by another daemon")
                return
            except SessionNotFoundError:
                return
            self._storing = self._suspect = False
            self._store_frames()
            if not self.frames:
                self._news.set()  # the end may have come meanwhile
        await self._finish()

    async def _apply(self) -> None:
        session_id, generation = self.session_id, self.generation
        urgent = is_urgent(self.frames)
        frames: list[Frame] = []

        def work(unit: Unit) -> Projected:
            # Taken when the work is done, not when it is handed in: what came while it waited its turn goes along instead of waiting
            # for another one. Runs in the store's thread, while the loop's may append; only what is committed is removed. An urgent
            # line, which wants a commit of its own kind, ends what a work that is not urgent takes.
            frames[:] = self.frames[:] if urgent else takewhile(lambda frame: not is_urgent([frame]), self.frames[:])
            return project(unit, session_id, generation, frames, self._core.policy)

        commands = self._agent.background_commands
        projected = await write_for_sure(self._core.store, work, lifecycle=urgent)
        self._session, self._agent = projected.session, projected.agent
        for frame in frames:
            self._feed(frame)
        self._clocks.mind(self._session, self._agent)
        for told in projected.told:
            self._core.live.wake(told)
        if projected.turn_ended:
            self._core.live.running_costs.pop(session_id, None)
            self._spawn(self._hooks.turn_ended(self._session), "after-turn")
            self._core.live.schedule()
        elif self._agent.background_commands != commands:
            self._core.live.schedule()  # a session may wait for the end of one
        self._drop(frames)

    @property
    def session(self) -> Session:
        """Its session, as of the last line that was stored."""
        return self._session

    def _follow(self, session: Session) -> None:
        self._session = session

    def _feed(self, frame: Frame) -> None:
        if frame.control is not None:
            self._live.conversation.feed(frame.control)

    # ── lines out ────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def wake_sender(self) -> None:
        """Something was committed to be written to the agent."""
        self._live.sender.wake()

    async def _open(self) -> None:
        """Speak the control protocol too. What it takes is loaded only once the daemon serves: lines are read and stored without it."""
        await self._core.recovered.wait()
        try:
            await self._live.conversation.open()
        except (AgentRefusedError, TimeoutError) as error:
            # It says nothing, or has other rights than the session by now: another process may fare better, and a person is told when none does.
            self._log.error("agent did not come up", error=str(error))
            await self._core.executor.end(self._handle, 1.0, epoch=self._core.fence)
            return
        except RametError as error:
            # Its end, which the journal tells, says the rest.
            self._log.warning("agent takes no more", error=error.message)
            return
        session_id = self.session_id
        self._session = await write_for_sure(
            self._core.store, lambda unit: deliver(unit, self._kind, unit.sessions.get(session_id))
        )
        self.wake_sender()
        self._clocks.mind(self._session, self._agent)
        self._core.live.schedule()

    async def follow_settings(self) -> None:
        """Bring the agent's mode and model to what the session wants."""
        await self._live.conversation.follow_settings()

    async def interrupt(self) -> None:
        """Ask the agent to end its turn; its result tells when it has."""
        await self._live.conversation.interrupt()

    def answered(self, request: Request) -> None:
        """A person has answered; called once that is committed."""
        self._live.conversation.answered(request)

    async def agent_pid(self) -> int:
        """The process id of the agent, 0 once it has ended."""
        try:
            return int((await self._live.attachment.status())["agent_pid"])
        except RametError:
            return 0

    # ── the agent's end ──────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _finish(self) -> None:
        recovered = await self._core.executor.recover(self._handle)
        if recovered.liveness == Liveness.ALIVE:
            # The connection broke, or a newer daemon has the keeper: the agent lives on without us.
            await self.detach()
            self._owner.reattach(self.session_id)
            return
        if recovered.liveness != Liveness.EXITED:
            await self._core.executor.end(self._handle, LATE_EXIT_GRACE_S, epoch=self._core.fence)
        tail, max_resumes = self._live.attachment.tail, self._core.config.agents.max_resumes
        await write_for_sure(
            self._core.store,
            lambda unit: record_end(
                unit,
                self._kind,
                self.session_id,
                self.generation,
                record=recovered.exit,
                stderr_tail=recovered.stderr_tail,
                unterminated=tail,
                max_resumes=max_resumes,
            ),
        )
        await self.detach()
        self.ended.set()
        await self._owner.after_end(self.session_id)
