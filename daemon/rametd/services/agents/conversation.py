"""The daemon's side of an agent's control channel. It answers the agent's requests durably:
decisions of a person, judgements of calls, results of tools. It also sets the session's mode and
model in the agent, and reads the agent's cost.
"""

import asyncio
import sys
from collections.abc import Callable, Mapping
from typing import Any, Unpack

import structlog

from rametd.agents.base import AgentKind, Channel, Decision, Judged, Opening, Question, ToolServer, ToolUse
from rametd.domain.models import DAEMON, Agent, Mode, OutgoingKind, Request, RequestState, Session
from rametd.keeper.executor import Attachment
from rametd.services import budgets, environments
from rametd.services.agents.projection import MOST_OPEN, open_request
from rametd.services.agents.questions import with_edit
from rametd.services.attention import decision_of
from rametd.services.core import Core
from rametd.services.delivery import post
from rametd.services.hooks import SessionHooks
from rametd.services.ownership.audit import Watch
from rametd.services.ownership.guard import judge
from rametd.store import Reader, Unit
from rametd.store.agents import AgentColumns

log = structlog.get_logger()

OPEN_PATIENCE_S = 55.0
"""Time limit from an agent's start until it takes prompts; the SDK gives up after a minute."""
ANSWER_S = 4.0
"""Seconds to wait for an agent's answer to a changed setting: usually it takes milliseconds."""

UNASKED = f"The person was not asked: the request no longer exists, or {MOST_OPEN} others of this session wait. End your turn."


class Conversation:
    """The `ChannelIO` of one process. It calls ``wake`` when it has committed a line for the
    agent."""

    def __init__(
        self,
        core: Core,
        hooks: SessionHooks,
        kind: AgentKind,
        session: Session,
        agent: Agent,
        attachment: Attachment,
        wake: Callable[[], None],
    ) -> None:
        self._core = core
        self._hooks = hooks
        self._kind = kind
        self._session_id, self._generation = session.id, agent.generation
        self._agent = agent
        # A resumed process includes the earlier cost of its conversation, which the ledger already
        # has.
        self._counts_on = bool(session.turns or session.forked_from) and not agent.activity
        self._attachment = attachment
        self._wake = wake
        self._watch = Watch(core)
        self._channel: Channel | None = None
        self._unfed: list[dict[str, Any]] = []  # stored, for the channel once it exists
        self._answers: dict[str, asyncio.Future[Request]] = {}  # by request
        self._interrupting: asyncio.Task[None] | None = None
        self._open = False  # the agent takes settings
        self._setting = asyncio.Lock()
        self._changes: set[asyncio.Task[None]] = set()  # calls of `_set`
        self.ready = asyncio.Event()  # the agent takes prompts, and has the session's settings

    async def open(self) -> None:
        """Shake hands until the agent takes prompts. Raise `TimeoutError` if it does not become
        ready."""
        await self._kind.prepare()
        channel = self._channel = self._kind.channel(self._agent, self)
        for message in self._unfed:
            channel.feed(message)
        self._unfed.clear()
        await asyncio.wait_for(channel.open(), OPEN_PATIENCE_S)
        if self._counts_on and (said := await channel.cost()):
            await self.note(cost_base=said)
        # In this order: a change that is committed after the read in `_set` must reach the agent by
        # itself, and a prompt must not overtake a mode that forbids more.
        self._open = True
        await self._set()
        self.ready.set()

    def feed(self, message: dict[str, Any]) -> None:
        """Pass a stored control message of the agent to the channel."""
        if self._channel is None:
            self._unfed.append(message)
        else:
            self._channel.feed(message)

    async def close(self) -> None:
        for change in self._changes:
            change.cancel()
        if self._changes:
            await asyncio.wait(self._changes)
        if self._channel is not None:
            await self._channel.close()

    async def interrupt(self) -> None:
        """Ask the agent to end its turn; the turn's result confirms it."""
        await self.ready.wait()
        if self._channel is not None:
            await self._channel.interrupt()

    async def follow_settings(self) -> None:
        """Set the session's mode and model in the agent where they differ. An agent that starts
        gets them before it takes prompts.

        Raise `AgentRefusedError`, and `TimeoutError` if the agent does not answer within
        `ANSWER_S`: it takes them when it reads its input again.
        """
        if not self._open:
            return
        change = asyncio.create_task(self._set(), name=f"settings-{self._session_id}")
        self._changes.add(change)
        change.add_done_callback(self._changed)
        done, _ = await asyncio.wait({change}, timeout=ANSWER_S)
        if not done:
            raise TimeoutError(f"no answer within {ANSWER_S:g} seconds")
        change.result()

    def _changed(self, change: "asyncio.Task[None]") -> None:
        self._changes.discard(change)
        if not change.cancelled() and (error := change.exception()) is not None:
            log.warning("settings not taken", session=self._session_id, error=str(error))

    async def _set(self) -> None:
        session_id, generation, channel = self._session_id, self._generation, self._channel
        assert channel is not None, "it is open"
        async with self._setting:
            session, agent = await self._core.store.read(
                lambda reader: (reader.sessions.get(session_id), reader.agents.get(session_id, generation))
            )
            if agent is not None and agent.mode != session.mode:
                await channel.set_mode(session.mode)
                await self.note(mode=session.mode)
            if agent is not None and agent.model != session.model:
                await channel.set_model(session.model)
                await self.note(model=session.model)

    async def note(self, **columns: Unpack[AgentColumns]) -> None:
        """Store columns of the process's row."""
        session_id, generation = self._session_id, self._generation
        await self._core.store.write_for_sure(lambda unit: unit.agents.update(session_id, generation, **columns))

    def answered(self, request: Request) -> None:
        """Pass on a person's committed answer."""
        future = self._answers.pop(request.id, None)
        if future is not None and not future.done():
            future.set_result(request)

    # ── ChannelIO ─────────────────────────────────────────────────────────────────────────────────

    async def write(self, line: bytes) -> None:
        await self._attachment.write(line)

    async def answer(self, control_id: str, line: bytes) -> None:
        session_id, generation = self._session_id, self._generation

        def work(unit: Unit) -> bool:
            if not unit.control.set_answer(session_id, generation, control_id, line):
                return False
            unit.outbox.add(session_id, generation, OutgoingKind.ANSWER, control_id, line)
            return True

        if await self._core.store.write_for_sure(work):
            self._wake()

    async def opening(self) -> Opening:
        session_id, generation, core = self._session_id, self._generation, self._core

        def find(reader: Reader) -> tuple[Session, bool]:
            session, before = reader.sessions.get(session_id), reader.agents.get(session_id, generation - 1)
            crashed = before is not None and not before.stop_intent
            return session, crashed and bool(reader.prompts.queued(session_id))

        session, doubtful = await core.store.read(find)
        environment = {
            "RAMET_SESSION": session.id,
            "RAMET_TOKEN": core.tokens.give(session.id),
            "RAMET_HOME": str(core.state_dir),
            "RAMET_RUNTIME_DIR": str(core.runtime_dir),
        }
        variables = frozenset(await environments.for_process(core, session.id, {}))
        return Opening(session, ToolServer((sys.executable, "-m", "rametctl", "mcp"), environment), doubtful, variables)

    async def enqueue(self, ref: str, line: bytes) -> None:
        session_id, generation = self._session_id, self._generation

        def work(unit: Unit) -> None:
            if not unit.outbox.has(session_id, generation, ref):
                unit.outbox.add(session_id, generation, OutgoingKind.CONTROL, ref, line)

        await self._core.store.write_for_sure(work)
        self._wake()

    async def ask(self, control_id: str, question: Question) -> None:
        session_id, generation = self._session_id, self._generation
        session = await self._core.store.read(lambda reader: reader.sessions.get(session_id))
        question = await with_edit(question, session.worktree)
        await self._core.store.write_for_sure(
            lambda unit: open_request(unit, self._core.policy, session_id, generation, control_id, question),
        )

    async def interrupting(self) -> None:
        await self.note(interrupting=True)

    async def initialized(self, hook_table: str) -> None:
        await self.note(hook_table=hook_table)

    async def decide(self, control_id: str) -> Decision:
        session_id, generation = self._session_id, self._generation
        request = await self._core.store.read(
            lambda reader: reader.requests.by_control(session_id, generation, control_id)
        )
        if request is None:
            return Decision(allow=False, message=UNASKED)
        if request.state == RequestState.OPEN:
            # Register before the second read: otherwise an answer committed between the two reads
            # would be missed.
            future = self._answers.setdefault(request.id, asyncio.get_running_loop().create_future())
            identity = request.id
            request = await self._core.store.read(lambda reader: reader.requests.get(identity))
            if request.state == RequestState.OPEN:
                request = await asyncio.shield(future)
        mode = await self._core.store.read(lambda reader: reader.sessions.get(session_id).mode)
        return decision_of(request, mode if mode != Mode.PLAN else Mode.DEFAULT)

    async def guard(self, use: ToolUse) -> Judged:
        """Judge a call before it runs. Deny it if the judgement fails: an agent runs a call if its
        hook answers with an error."""
        try:
            return await self._judge(use)
        except Exception:  # whatever failed, an unjudged call must not run
            log.exception("a call could not be judged", session=self._session_id, tool=use.tool)
            return Judged("deny", "Ramet could not judge this call, because of an error that its log describes.")

    async def _judge(self, use: ToolUse) -> Judged:
        """Judge by budgets first, since the cost of the model's last reply is new; then by rules.

        Wait for the previous turn's checkpoint: a prompt sent during that turn begins the next one
        inside the agent, so the call could change files before they are recorded.
        """
        session_id = self._session_id
        session = await self._core.store.read(lambda reader: reader.sessions.get(session_id))
        if session.checkpoint_due:
            await self._hooks.settle_checkpoint(session_id)
        budget = self._core.config.budget
        if await self._core.store.read(lambda reader: budgets.spendings(reader, session, budget)):
            self._core.live.running_costs[session_id] = await self._running_cost()
            running = dict(self._core.live.running_costs)  # a copy: the store's threads read it
            spent = await self._core.store.read(
                lambda reader: budgets.exceeded(reader, session, budget, running=running)
            )
            if spent is not None:
                await self.note(over_budget=spent.reason)
                # Not awaited: the agent handles the interrupt only after it has this answer.
                self._interrupting = asyncio.create_task(self.interrupt(), name=f"budget-{session_id}")
                return Judged("deny", f"{spent}. The session is held until the person raises the limit; stop here.")
        judged = await judge(self._core, session, use)
        if judged.effect != "deny":
            await self._watch.begin(session, use)
        return judged

    async def judge_result(self, use: ToolUse) -> str:
        session_id = self._session_id
        return await self._watch.end(await self._core.store.read(lambda reader: reader.sessions.get(session_id)), use)

    async def notice(self) -> str:
        session_id, store = self._session_id, self._core.store
        if await store.read(lambda reader: reader.notices.get(session_id)) is None:
            return ""
        return await store.write_for_sure(lambda unit: unit.notices.take(session_id))

    async def prompt(self, words: str) -> None:
        session_id, kind = self._session_id, self._kind
        await self._core.store.write_for_sure(
            lambda unit: post(unit, kind, unit.sessions.get(session_id), words, DAEMON)
        )
        self._wake()
        self._core.live.schedule()

    def turn_ended(self) -> None:
        """Stop watching the turn's calls: some never report their end."""
        self._watch.forget()

    async def _running_cost(self) -> float:
        """Return the cost in dollars of the running turn that the ledger does not have yet."""
        session_id, generation = self._session_id, self._generation
        said = await self._channel.cost() if self._channel is not None else None
        agent = await self._core.store.read(lambda reader: reader.agents.get(session_id, generation))
        return max(0.0, said - agent.cost_base) if said is not None and agent is not None else 0.0

    async def use_tools(self, control_id: str, message: Mapping[str, Any]) -> dict[str, Any] | None:
        """Run a call of the daemon's own tools. The id of the control request is the call's request
        id, so that a repeat after a crash is the same call."""
        key = f"{self._session_id}:{self._generation}:{control_id}"
        return await self._hooks.use_tools(self._session_id, key, message)

    def failed(self, error: BaseException) -> None:
        log.error("control channel", session=self._session_id, exc_info=error)
