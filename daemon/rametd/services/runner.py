"""One running agent, from the daemon's side: reads its lines, writes what is owed to it, speaks its control protocol, notices its end.

A runner holds nothing that a crash could lose: what it reads is committed with its offset, what it writes was committed before. Another daemon
begins where this one was killed.
"""

import asyncio
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from itertools import takewhile
from typing import Any, Unpack

import structlog
from ramet.v1 import event_pb2

from rametd.agents.base import AgentKind, Channel, Decision, Frame, Judged, ToolUse
from rametd.domain.errors import RametError, SessionNotFoundError, StaleBatchError
from rametd.domain.models import Agent, ControlRequest, Mode, OutgoingKind, Request, RequestState, Session
from rametd.domain.states import BUSY_STATES, State
from rametd.keeper.executor import Attachment, Handle, Liveness
from rametd.services import budgets, events
from rametd.services.attention import decision_of
from rametd.services.core import Core
from rametd.services.delivery import deliver
from rametd.services.endings import record_end
from rametd.services.guard import judge
from rametd.services.lifecycle import change_state
from rametd.services.persistence import write_for_sure
from rametd.services.projection import Projected, is_urgent, project, store_calm
from rametd.store import Unit
from rametd.store.agents import AgentColumns

log = structlog.get_logger()

BACKLOG = 256
"""Lines read ahead of the store, and so in one unit of work at most; beyond them the keeper's journal is the buffer."""
BACKLOG_BYTES = 4 << 20
"""The same for their bytes, as a line may have megabytes."""
RELEASE_BYTES = 1 << 20
"""The journal is released to be rotated in steps of this."""
LATE_EXIT_GRACE_S = 10.0
"""An agent that outlived its keeper has lost its input and is finishing its turn; it gets this long to do so."""
OPEN_PATIENCE_S = 55.0
"""How long an agent may take from its start until it answers; the SDK gives up after a minute."""
FAULT_PAUSE_S = 2.0
"""How long an agent rests from a daemon that has failed over it, so that a fault that comes again does not come in a loop."""
IDLE_GRACE_S = 2.0
"""An agent that says it is idle without having given a result has ended its turn after all when this has passed."""


class Runner:
    """From `start` until the agent's end or `detach`."""

    def __init__(self, core: Core, session: Session, agent: Agent) -> None:
        self.session_id = session.id
        self.generation = agent.generation
        self.ready = asyncio.Event()  # the agent takes prompts
        self.ended = asyncio.Event()
        self._core = core
        self._kind: AgentKind = core.kind(session.agent)
        self._handle = Handle(agent.handle)
        self._session = session
        self._agent = agent
        self._attachment: Attachment | None = None
        self._channel: Channel | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._faulty: asyncio.Task[None] | None = None
        self._frames: list[Frame] = []  # read, not yet stored
        self._unfed: list[dict[str, Any]] = []  # stored, for the channel once it is there
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._at_end = False
        self._outgoing = asyncio.Event()
        self._answers: dict[str, asyncio.Future[Request]] = {}  # by request
        self._released = agent.journal_offset
        self._stdin_offset = agent.stdin_offset
        self._stdin_released = agent.stdin_offset
        self._idle_timer: asyncio.TimerHandle | None = None
        self._sleep_timer: asyncio.TimerHandle | None = None
        self._log = log.bind(session=session.id, generation=agent.generation)

    # ── beginning and end ────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def start(self) -> None:
        """Attach; everything else goes on in tasks. Raises what `Executor.attach` raises."""
        core, session_id, generation = self._core, self.session_id, self.generation
        self._attachment = await core.executor.attach(self._handle, epoch=core.fence, offset=self._agent.journal_offset)
        await self._reconcile_written()

        def load(unit: Unit) -> list[ControlRequest]:
            payload = event_pb2.AgentAttached(generation=generation, offset=self._agent.journal_offset)
            unit.events.append(events.make(payload, session_id=session_id, repo_id=self._session.repo_id))
            return unit.control.open(session_id, generation)

        for request in await write_for_sure(core.store, load):
            self._feed(self._kind.read(self._agent, 0, 0, request.frame))
        core.runners[session_id] = self
        self._spawn(self._pump(), "pump")
        self._spawn(self._project(), "project")
        self._spawn(self._send(), "send")
        self._spawn(self._open(), "open")

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
        self._core.reattach(self.session_id)

    async def detach(self) -> None:
        """Let go of the agent, which lives on."""
        for timer in (self._idle_timer, self._sleep_timer):
            if timer is not None:
                timer.cancel()
        if self._core.runners.get(self.session_id) is self:
            del self._core.runners[self.session_id]
            self._core.running_costs.pop(self.session_id, None)
        current = asyncio.current_task()
        tasks = [task for task in self._tasks if task is not current]
        for task in tasks:
            task.cancel()
        if self._channel is not None:
            await self._channel.close()
        if tasks:
            await asyncio.wait(tasks)
        if self._attachment is not None:
            await self._attachment.close()
        self.ended.set()  # whoever waits for the end has nothing to wait for here any more

    async def end(self, intent: str, grace: float) -> None:
        """End the agent with all its processes, and return when that is on record. ``intent`` is stored before the first signal."""
        await self._note(stop_intent=intent)
        self._core.failpoint.hit("end.intended")
        await self._core.executor.end(self._handle, grace, epoch=self._core.fence)
        await self.ended.wait()

    # ── lines in ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _pump(self) -> None:
        assert self._attachment is not None
        # What agents said while there was no daemon must not keep a new one from serving; it waits in the keepers' journals.
        await self._core.recovered.wait()
        try:
            async for line in self._attachment:
                self._frames.append(self._kind.read(self._agent, line.start, line.end, line.data))
                self._news.set()
                if len(self._frames) >= BACKLOG or line.end - self._frames[0].start >= BACKLOG_BYTES:
                    self._room.clear()
                    await self._room.wait()
        except RametError as error:
            # Fenced by a newer daemon, or the keeper broke: either way nothing more comes over this connection.
            self._log.warning("keeper connection ended", error=error.message)
        finally:
            self._at_end = True
            self._news.set()

    async def _project(self) -> None:
        while True:
            await self._news.wait()
            if not self._frames:
                if self._at_end:
                    break
                self._news.clear()
                continue
            try:
                await self._apply()
            except StaleBatchError:
                # Another daemon took over between our read and our commit: what we read is its to store.
                self._log.warning("superseded by another daemon")
                return
            except SessionNotFoundError:
                return
        await self._finish()

    async def _apply(self) -> None:
        session_id, generation = self.session_id, self.generation
        urgent = is_urgent(self._frames)
        frames: list[Frame] = []

        def work(unit: Unit) -> Projected:
            # Taken when the work is done, not when it is handed in: what came while it waited its turn goes along instead of waiting
            # for another one. Runs in the store's thread, while the loop's may append; only what is committed is removed. An urgent
            # line, which wants a commit of its own kind, ends what a work that is not urgent takes.
            frames[:] = self._frames[:] if urgent else takewhile(lambda frame: not is_urgent([frame]), self._frames[:])
            if any(frame.facts for frame in frames):
                return project(unit, session_id, generation, frames, self._core.policy)
            store_calm(unit, self._session, generation, frames)
            return Projected(self._session, self._agent, turn_ended=False, told=())

        projected = await write_for_sure(self._core.store, work, lifecycle=urgent)
        del self._frames[: len(frames)]
        self._room.set()
        self._session, self._agent = projected.session, projected.agent
        for frame in frames:
            self._feed(frame)
        self._mind_timers()
        for told in projected.told:
            self._core.wake_session(told)
        if projected.turn_ended:
            self._core.running_costs.pop(session_id, None)
            self._core.wake()
        offset = frames[-1].end
        if offset - self._released >= RELEASE_BYTES and self._attachment is not None:
            self._released = offset
            with suppress(RametError):  # the end of the connection is seen by the pump
                await self._attachment.release(offset)

    def _feed(self, frame: Frame) -> None:
        if frame.control is None:
            return
        if self._channel is None:
            self._unfed.append(frame.control)
        else:
            self._channel.feed(frame.control)

    def _mind_timers(self) -> None:
        """The two clocks of an idle agent: a turn that gave no result is over after a while; an agent without work goes to sleep."""
        loop = asyncio.get_running_loop()
        agent, session = self._agent, self._session
        silent = agent.activity == "idle" and not agent.result and not agent.background and session.state in BUSY_STATES
        if silent and self._idle_timer is None:
            self._idle_timer = loop.call_later(IDLE_GRACE_S, self._spawn_end_silent_turn)
        elif not silent and self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None
        resting = session.state == State.IDLE and not agent.background
        after = self._core.config.agents.sleep_after
        if resting and self._sleep_timer is None and after is not None:
            self._sleep_timer = loop.call_later(after, self._spawn_sleep)
        elif not resting and self._sleep_timer is not None:
            self._sleep_timer.cancel()
            self._sleep_timer = None

    def _spawn_end_silent_turn(self) -> None:
        self._idle_timer = None
        self._spawn(self._end_silent_turn(), "end-silent-turn")

    async def _end_silent_turn(self) -> None:
        session_id, generation = self.session_id, self.generation

        def work(unit: Unit) -> bool:
            session = unit.sessions.get(session_id)
            agent = unit.agents.get(session_id, generation)
            if agent is None or agent.activity != "idle" or agent.result or session.state not in BUSY_STATES:
                return False
            unit.agents.update(session_id, generation, result="ok")
            self._session = change_state(unit, session, State.IDLE)
            return True

        if await write_for_sure(self._core.store, work):
            self._core.wake()

    def _spawn_sleep(self) -> None:
        self._sleep_timer = None
        self._spawn(self._sleep(), "sleep")

    async def _sleep(self) -> None:
        """End the process of an idle agent. A prompt that comes in between is delivered to it first or starts a new one: never both."""
        session_id, generation = self.session_id, self.generation

        def work(unit: Unit) -> bool:
            if unit.sessions.get(session_id).state != State.IDLE or unit.prompts.open(session_id):
                return False
            unit.agents.update(session_id, generation, stop_intent="sleep")
            return True

        if await write_for_sure(self._core.store, work):
            await self._core.executor.end(self._handle, 5.0, epoch=self._core.fence)

    # ── lines out ────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def wake_sender(self) -> None:
        """Something was committed to be written to the agent."""
        self._outgoing.set()

    async def _reconcile_written(self) -> None:
        """Learn from the keeper's record which lines a killed daemon had written but not noted."""
        assert self._attachment is not None
        session_id, generation = self.session_id, self.generation
        pending = await self._core.store.read(lambda reader: reader.outbox.pending(session_id, generation))
        since = self._agent.stdin_offset
        written = await self._attachment.written_since(since)
        if not written:
            return
        lines = {line.data for line in written}
        known = [each.id for each in pending if each.line in lines]
        end = written[-1].end

        def work(unit: Unit) -> None:
            unit.outbox.mark_written(known)
            unit.agents.advance_stdin(session_id, generation, end, expect_offset=since)

        await write_for_sure(self._core.store, work)
        self._stdin_offset = end

    async def _send(self) -> None:
        """Write what is owed, in order. A line leaves only once it is committed, and is noted once the keeper has it."""
        assert self._attachment is not None
        session_id, generation = self.session_id, self.generation
        while True:
            self._outgoing.clear()
            pending = await self._core.store.read(lambda reader: reader.outbox.pending(session_id, generation))
            for line in pending:
                if line.kind == OutgoingKind.PROMPT:
                    await self.ready.wait()
                self._core.failpoint.hit(f"{line.kind}.committed")
                try:
                    end = await self._attachment.write(line.line)
                except RametError as error:
                    self._log.warning("agent takes no more", error=error.message)
                    return
                self._core.failpoint.hit(f"{line.kind}.written")
                await self._note_written(line.id, end)
            if not pending:
                await self._outgoing.wait()

    async def _note_written(self, outgoing: int, end: int) -> None:
        """A line is in the keeper's record, which ends at ``end``: what lies before needs no second look."""
        assert self._attachment is not None
        session_id, generation, since = self.session_id, self.generation, self._stdin_offset

        def work(unit: Unit) -> None:
            unit.outbox.mark_written([outgoing])
            unit.agents.advance_stdin(session_id, generation, end, expect_offset=since)

        await write_for_sure(self._core.store, work, lifecycle=False)
        self._stdin_offset = end
        if end - self._stdin_released >= RELEASE_BYTES:
            self._stdin_released = end
            with suppress(RametError):  # the end of the connection is seen by the pump
                await self._attachment.release_stdin(end)

    # ── the control channel ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _open(self) -> None:
        """Speak the protocol too. What it takes is loaded only once the daemon serves: lines are read and stored without it."""
        await self._core.recovered.wait()
        await self._kind.prepare()
        self._channel = self._kind.channel(self._agent, self)
        for message in self._unfed:
            self._channel.feed(message)
        self._unfed.clear()
        try:
            await asyncio.wait_for(self._channel.open(), OPEN_PATIENCE_S)
            await self._measure_base()
            self.ready.set()
            await self.follow_settings()
        except RametError as error:
            # Its end, which the journal tells, says the rest.
            self._log.warning("agent takes no more", error=error.message)
            return
        except TimeoutError:
            # It runs and says nothing: another process of it may fare better, and a person is told when none does.
            self._log.error("agent did not come up", seconds=OPEN_PATIENCE_S)
            await self._core.executor.end(self._handle, 1.0, epoch=self._core.fence)
            return
        session_id = self.session_id
        self._session = await write_for_sure(
            self._core.store, lambda unit: deliver(unit, self._kind, unit.sessions.get(session_id))
        )
        self.wake_sender()
        self._mind_timers()
        self._core.wake()

    async def follow_settings(self) -> None:
        """Bring the agent's mode and model to what the session wants, where they differ."""
        session_id, generation = self.session_id, self.generation
        if self._channel is None or not self.ready.is_set():
            return
        session = await self._core.store.read(lambda reader: reader.sessions.get(session_id))
        agent = await self._core.store.read(lambda reader: reader.agents.get(session_id, generation))
        if agent is None:
            return
        if agent.mode != session.mode:
            await self._channel.set_mode(session.mode)
        if agent.model != session.model:
            await self._channel.set_model(session.model)
        if (agent.mode, agent.model) != (session.mode, session.model):
            await self._note(mode=session.mode, model=session.model)

    async def _note(self, **columns: Unpack[AgentColumns]) -> None:
        session_id, generation = self.session_id, self.generation
        await write_for_sure(self._core.store, lambda unit: unit.agents.update(session_id, generation, **columns))

    async def agent_pid(self) -> int:
        """The process id of the agent, 0 once it has ended."""
        assert self._attachment is not None
        try:
            return int((await self._attachment.status())["agent_pid"])
        except RametError:
            return 0

    async def interrupt(self) -> None:
        """Ask the agent to end its turn; its result tells when it has."""
        await self.ready.wait()
        if self._channel is not None:
            await self._channel.interrupt()

    async def write(self, line: bytes) -> None:
        assert self._attachment is not None
        await self._attachment.write(line)

    async def answer(self, control_id: str, line: bytes) -> None:
        session_id, generation = self.session_id, self.generation

        def work(unit: Unit) -> bool:
            if not unit.control.set_answer(session_id, generation, control_id, line):
                return False
            unit.outbox.add(session_id, generation, OutgoingKind.ANSWER, control_id, line)
            return True

        if await write_for_sure(self._core.store, work):
            self.wake_sender()

    async def initialized(self, hook_table: str) -> None:
        await self._note(hook_table=hook_table)

    async def decide(self, control_id: str) -> Decision:
        session_id, generation = self.session_id, self.generation
        request = await self._core.store.read(
            lambda reader: reader.requests.by_control(session_id, generation, control_id)
        )
        if request is None:
            return Decision(allow=False, message="The request is not known any more; ask again.")
        if request.state == RequestState.OPEN:
            # Registered before the second look: an answer that is committed between the two looks would else be missed.
            future = self._answers.setdefault(request.id, asyncio.get_running_loop().create_future())
            identity = request.id
            request = await self._core.store.read(lambda reader: reader.requests.get(identity))
            if request.state == RequestState.OPEN:
                request = await asyncio.shield(future)
        mode = await self._core.store.read(lambda reader: reader.sessions.get(session_id).mode)
        return decision_of(request, mode if mode != Mode.PLAN else Mode.DEFAULT)

    async def guard(self, use: ToolUse) -> Judged:
        """Judge a call before it is made: budgets first, as it comes right after a model's call was paid; then rules."""
        session_id = self.session_id
        session = await self._core.store.read(lambda reader: reader.sessions.get(session_id))
        budget = self._core.config.budget
        if await self._core.store.read(lambda reader: budgets.spendings(reader, session, budget)):
            self._core.running_costs[session_id] = await self._running_cost()
            running = dict(self._core.running_costs)  # the store's threads read it
            spent = await self._core.store.read(
                lambda reader: budgets.exceeded(reader, session, budget, running=running)
            )
            if spent is not None:
                self._spawn(self.interrupt(), "budget")
                return Judged("deny", f"{spent}. The session is held until the person raises the limit; stop here.")
        return await judge(self._core, session, use)

    async def _measure_base(self) -> None:
        """A resumed process counts on from what its conversation has cost before, which the ledger has; asked before its first turn."""
        if self._channel is None or self._agent.activity or not self._session.turns:
            return
        said = await self._channel.cost()
        if said:
            await self._note(cost_base=said)

    async def _running_cost(self) -> float:
        """What the running turn has cost beyond the ledger, in dollars."""
        session_id, generation = self.session_id, self.generation
        said = await self._channel.cost() if self._channel is not None else None
        agent = await self._core.store.read(lambda reader: reader.agents.get(session_id, generation))
        return max(0.0, said - agent.cost_base) if said is not None and agent is not None else 0.0

    async def use_tools(self, control_id: str, message: Mapping[str, Any]) -> dict[str, Any] | None:
        """A call of the daemon's own tools. Its key is that of the control request: asked again after a crash, it is the same call."""
        return await self._core.use_tools(self.session_id, f"{self.session_id}:{self.generation}:{control_id}", message)

    def failed(self, error: BaseException) -> None:
        self._log.error("control channel", exc_info=error)

    def answered(self, request: Request) -> None:
        """A person has answered; called once that is committed."""
        future = self._answers.pop(request.id, None)
        if future is not None and not future.done():
            future.set_result(request)

    # ── the agent's end ──────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _finish(self) -> None:
        assert self._attachment is not None
        recovered = await self._core.executor.recover(self._handle)
        if recovered.liveness == Liveness.ALIVE:
            # The connection broke, or a newer daemon has the keeper: the agent lives on without us.
            await self.detach()
            self._core.reattach(self.session_id)
            return
        if recovered.liveness != Liveness.EXITED:
            await self._core.executor.end(self._handle, LATE_EXIT_GRACE_S, epoch=self._core.fence)
        tail, max_resumes = self._attachment.tail, self._core.config.agents.max_resumes
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
        await self._core.after_end(self.session_id)
