"""Existing sessions: send prompts, interrupt, stop, pause, resume, change settings."""

import asyncio
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from ramet.v1 import attention_pb2

from rametd.agents.base import require, require_mode
from rametd.config import Budget
from rametd.domain.errors import AgentRefusedError, BypassForbiddenError, NameTakenError, WrongStateError
from rametd.domain.models import UNATTENDED, Event, Hold, Mode, Prompt, PromptState, Repo, Request, Session
from rametd.domain.states import State
from rametd.git import Tree
from rametd.services import budgets
from rametd.services.agents.supervisor import Supervisor
from rametd.services.agents.transcripts import Transcripts
from rametd.services.checks import (
    check_budget,
    check_effort,
    check_images,
    check_model,
    check_name,
    check_prompt,
    check_token_budget,
)
from rametd.services.core import Core
from rametd.services.delivery import TURN_STATES, post, withdraw
from rametd.services.lifecycle import change_state, held_by_person, log_update, refuse_archived, release_login
from rametd.services.live import LiveAgent
from rametd.services.missing import require_sound_tree
from rametd.services.ownership.transfers import set_paths
from rametd.services.predecessors import let_go
from rametd.services.repos import info_of
from rametd.store import Reader, Unit

T = TypeVar("T")

SLEEP = "sleep"
"""Intent for the end of an idle agent."""
STOP_GRACE_S = 5.0
INTERRUPT_DEADLINE_S = 15.0
PROMPT_ARRIVES_S = 3.0
"""Seconds to wait for the turn of a sent prompt to start, before interrupting anyway."""
SETTLE_S = 2.0
"""Maximum number of seconds from a turn's result until the session is idle, unless another turn
follows."""
HELD_STATES = frozenset({State.PAUSED, State.LOST, State.FAILED})


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes for `Sessions.update`: None leaves a value. A budget of 0 removes the limit."""

    name: str | None = None
    model: str | None = None
    effort: str | None = None
    mode: Mode | None = None
    budget_usd: float | None = None
    budget_tokens: int | None = None
    priority: int | None = None
    owns: tuple[str, ...] | None = None
    forbids: tuple[str, ...] | None = None


class Sessions:
    def __init__(self, core: Core, supervisor: Supervisor) -> None:
        self._core = core
        self._supervisor = supervisor

    async def send(
        self,
        session_id: str,
        text: str,
        principal: str,
        answer: Callable[[Unit, Prompt, Session], T],
        *,
        images: Sequence[bytes] = (),
    ) -> T:
        """Queue a prompt; return the result of ``answer`` in the same unit of work.

        A working session gets the prompt in its running turn. An idle, stopped or failed one starts
        a turn. A held one gets it later.
        """
        check_prompt(text)
        session = await self._get(session_id)
        check_images(self._core.kind(session.agent), images)
        await require_sound_tree(self._core, session)

        def work(unit: Unit) -> tuple[T, bool]:
            session = unit.sessions.get(session_id)
            prompt, session = post(unit, self._core.kind(session.agent), session, text, principal, images=images)
            return answer(unit, prompt, session), session.state == State.QUEUED

        answered, queued = await self._core.store.write(work)
        if queued:  # the scheduler delivers it
            self._core.live.schedule()
        else:
            self._core.live.wake(session_id)
        return answered

    async def warnings(self, session: Session) -> list[str]:
        """Warnings for the person before the next turn."""
        warning = await Transcripts(self._core).warning(session)
        return [warning] if warning else []

    async def withdraw(
        self,
        session_id: str,
        prompt_ids: Sequence[str],
        principal: str,
        answer: Callable[[Unit, list[Prompt], Session], T],
    ) -> T:
        """Cancel queued prompts (by default the newest of ``principal``); return the result of
        ``answer`` in the same unit of work.

        A session that was queued only because of them becomes idle. Raises `WrongStateError` if the
        agent has all prompts already.
        """

        def work(unit: Unit) -> T:
            session = unit.sessions.get(session_id)
            opened = [each for each in unit.prompts.open(session_id) if not each.continues]
            queued = [each for each in unit.prompts.queued(session_id) if not each.continues]
            if prompt_ids:
                chosen = [each for each in queued if each.id in prompt_ids]
            else:
                chosen = [each for each in queued if each.source == principal][-1:]
            if not chosen and opened:
                raise WrongStateError(
                    f"the agent of {session.name} has the prompt already",
                    hint=f"`rametctl interrupt {session.reference}` ends its turn and withdraws what it has not read",
                )
            if not chosen:
                raise WrongStateError(
                    f"{session.name} has no queued prompt", hint=f"see: rametctl show {session.reference}"
                )
            withdrawn = [withdraw(unit, session, each, principal) for each in chosen]
            if session.state == State.QUEUED and not session.interrupted and not unit.prompts.open(session_id):
                session = change_state(unit, session, State.IDLE, principal=principal)
            return answer(unit, withdrawn, unit.sessions.get(session_id))

        return await self._core.store.write(work)

    async def interrupt(self, session_id: str) -> tuple[bool, list[Prompt]]:
        """End the running turn, and withdraw prompts that the agent has not read.

        Return whether a turn ran, and the withdrawn prompts. Raises `WrongStateError` if the turn
        does not end.
        """
        await self._supervisor.settled(session_id)
        session, before = await self._core.store.read(
            lambda reader: (reader.sessions.get(session_id), {each.number for each in reader.prompts.open(session_id)})
        )
        runner = self._core.live.get(session_id)
        if session.state not in TURN_STATES or runner is None:
            return False, []
        await self._end_turn(runner, session)
        prompts = await self._core.store.read(lambda reader: reader.prompts.list(session_id))
        return True, [each for each in prompts if each.number in before and each.state == PromptState.CANCELLED]

    async def _end_turn(self, agent: LiveAgent, session: Session) -> None:
        watcher = self._core.hub.watch(session.last_seq, [session.id])
        try:
            async with asyncio.timeout(INTERRUPT_DEADLINE_S):
                # The race: a session is WORKING once its prompt is written. An interrupt that
                # overtakes the prompt has no effect.
                with suppress(TimeoutError):
                    async with asyncio.timeout(PROMPT_ARRIVES_S):
                        while not await self._turn_begun(session):
                            await watcher.next()
                await agent.interrupt()
                # A queued prompt starts the next turn at once: compare the number of turns, not
                # only the state.
                seen: list[Event] = []
                while (now := await self._get(session.id)).state in TURN_STATES and now.turns == session.turns:
                    if any(event.kind == "turn_started" for event in seen):
                        # The agent read the interrupt before the prompt, so it had no effect, and
                        # the turn of the queued prompt starts now: interrupt again.
                        await agent.interrupt()
                    seen = await watcher.next()
            # The agent reports the result, and a moment later that it is idle. In between the turn
            # still seems to run.
            with suppress(TimeoutError):
                async with asyncio.timeout(SETTLE_S):
                    while (await self._get(session.id)).state in TURN_STATES:
                        await watcher.next()
        except TimeoutError:
            raise WrongStateError(
                f"{session.name} did not end its turn within {INTERRUPT_DEADLINE_S:.0f} seconds",
                hint=f"end its agent with `rametctl stop {session.reference}`: nothing is lost",
            ) from None
        finally:
            watcher.close()

    async def _turn_begun(self, session: Session) -> bool:
        """Return whether an interrupt reaches the turn. It does for an agent that takes one prompt
        at a time, which reads the interrupt after its prompt. Any other agent must have reported
        that it works, or wait for a person."""
        if not self._core.kind(session.agent).capabilities.steer:
            return True
        agent = await self._core.store.read(lambda reader: reader.agents.latest(session.id))
        return agent is None or agent.activity not in {"", "idle"}

    async def stop(self, session_id: str, principal: str) -> Session:
        """End the agent with all its processes. The next prompt or `resume` continues its turn."""

        def work(unit: Unit) -> None:
            session = unit.sessions.get(session_id)
            agent = unit.agents.latest(session_id)
            in_turn = session.state in TURN_STATES and agent is not None and agent.in_turn
            if agent is not None and agent.state in {"starting", "live"}:
                unit.agents.update(session_id, agent.generation, stop_intent="stop")
            if session.state in {State.QUEUED, State.STARTING, State.WORKING, State.WAITING, State.LOST}:
                change_state(
                    unit,
                    session,
                    State.PAUSED,
                    reason=f"stopped: `rametctl resume {session.reference}` continues it",
                    hold=Hold.STOPPED,
                    principal=principal,
                    interrupted=session.interrupted or in_turn,
                )

        await self._core.store.write(work)
        await self._supervisor.settled(session_id)
        runner = self._core.live.get(session_id)
        if runner is not None:
            await runner.end("stop", STOP_GRACE_S)
        self._core.live.schedule()
        return await self._get(session_id)

    async def pause(self, session_id: str, principal: str) -> Session:
        """Hold a session: interrupt its turn; prompts wait until `resume`."""
        await self._supervisor.settled(session_id)
        session = await self._get(session_id)
        in_turn = session.state in TURN_STATES
        runner = self._core.live.get(session_id)
        if in_turn and runner is not None:

            def hold(unit: Unit) -> None:
                # With this note, the end of the turn holds the session before a prompt can start
                # another turn.
                now = unit.sessions.get(session_id)
                if now.state in TURN_STATES:
                    change_state(unit, now, now.state, reason=now.state_reason, hold=Hold.PERSON, principal=principal)

            await self._core.store.write(hold)
            await self._end_turn(runner, session)

        def work(unit: Unit) -> Session:
            session = unit.sessions.get(session_id)
            if session.state == State.ARCHIVED:
                raise WrongStateError(f"{session.name} is archived", hint="there is nothing to pause")
            return change_state(
                unit,
                session,
                State.PAUSED,
                reason=held_by_person(session),
                hold=Hold.PERSON,
                principal=principal,
                interrupted=session.interrupted or in_turn,
            )

        return await self._core.store.write(work)

    async def resume(self, session_id: str, principal: str) -> Session:
        """Continue a paused, lost or failed session; leave any other as it is."""
        await require_sound_tree(self._core, await self._get(session_id))

        session = await self._core.store.write(
            lambda unit: resume_session(unit, unit.sessions.get(session_id), principal)
        )
        self._core.live.schedule()
        return session

    async def _tree(self, session_id: str) -> Tree:
        """Files of a session's base, for letter case and links in its paths."""

        def find(reader: Reader) -> tuple[Session, Repo]:
            session = reader.sessions.get(session_id)
            return session, reader.repos.get(session.repo_id)

        session, repo = await self._core.store.read(find)
        return await self._core.git.commits.files(await info_of(self._core, repo), session.base_commit)

    async def update(self, session_id: str, changes: Changes, principal: str) -> list[str]:
        """Change settings; a living agent gets them at once. Return warnings.

        Raises `AgentRefusedError` if the agent refuses them during a turn. An idle one is ended
        then: its next process starts with them.
        """
        if changes.mode in UNATTENDED and not self._core.config.permissions.allow_bypass:
            raise BypassForbiddenError.of(changes.mode)

        kind = self._core.kind((await self._get(session_id)).agent)
        if changes.mode is not None:
            require_mode(kind, changes.mode)
        for capability, wanted in (("set_model", changes.model), ("effort", changes.effort)):
            if wanted:
                require(kind, capability)
        budgets.check_kind(kind, in_dollars=bool(changes.budget_usd), in_tokens=bool(changes.budget_tokens))
        check_model(changes.model or "")
        check_effort(changes.effort or "")
        check_budget(changes.budget_usd or None)
        check_token_budget(changes.budget_tokens or None)
        tree = await self._tree(session_id) if changes.owns else None

        def work(unit: Unit) -> Session:
            session = unit.sessions.get(session_id)
            columns: dict[str, Any] = {}
            if changes.name is not None and changes.name != session.name:
                taken = unit.sessions.by_name(check_name(changes.name), session.repo_id)
                if taken:
                    raise NameTakenError(f"a session is called {changes.name!r} already", hint="choose another name")
                columns["name"] = changes.name
            if changes.model is not None:
                columns["model"] = changes.model
            if changes.effort is not None:
                columns["effort"] = changes.effort
            if changes.mode is not None:
                columns["mode"] = changes.mode
            for name in ("budget_usd", "budget_tokens"):
                if (limit := getattr(changes, name)) is not None:
                    columns |= {name: limit or None, "budget_warned": False}
            if changes.priority is not None:
                columns["priority"] = changes.priority
            session = unit.sessions.update(session_id, **columns)
            fields = columns.keys() - {"budget_warned"}
            if changes.owns is not None or changes.forbids is not None:
                session = set_paths(unit, session, changes.owns, changes.forbids, principal, tree)
                fields |= {name for name in ("owns", "forbids") if getattr(changes, name) is not None}
            log_update(unit, session, sorted(fields), principal)
            if "budget_warned" in columns:
                session = release(unit, session, self._core.config.budget, principal)
            return session

        session = await self._core.store.write(work)
        self._core.live.schedule()
        runner = self._core.live.get(session_id)
        if runner is None:
            return []
        try:
            await runner.follow_settings()
        except TimeoutError:
            silent = f"the agent of {session.name} does not answer: the change is stored, and takes effect when it answers or starts again"
            return [f"{silent} (`rametctl stop {session.reference}` ends it; nothing is lost)"]
        except AgentRefusedError:
            if not await self._core.store.write_for_sure(lambda unit: _put_to_sleep(unit, session_id)):
                raise
            await runner.end(SLEEP, STOP_GRACE_S)
        return []

    async def _get(self, session_id: str) -> Session:
        return await self._core.store.read(lambda reader: reader.sessions.get(session_id))


def _put_to_sleep(unit: Unit, session_id: str) -> bool:
    """Mark the end of an idle agent as requested, so that a prompt starts another process. Return
    whether it is idle."""
    session, agent = unit.sessions.get(session_id), unit.agents.latest(session_id)
    if session.state != State.IDLE or unit.prompts.open(session_id) or agent is None or agent.background_commands:
        return False
    unit.agents.update(session_id, agent.generation, stop_intent=SLEEP)
    return True


def resume_session(unit: Unit, session: Session, principal: str) -> Session:
    """`Sessions.resume` inside a unit of work."""
    refuse_archived(session)
    session = let_go(unit, session, principal)
    if session.state not in HELD_STATES:
        return session
    if session.hold == Hold.LOGIN:  # the person has logged in: resume all sessions that wait for it
        release_login(unit, session.agent, principal)
        return unit.sessions.get(session.id)
    waiting = bool(unit.prompts.queued(session.id))
    # The agent has received the prompt of a failed turn: send it a continuation.
    interrupted = session.interrupted or (session.state == State.FAILED and not waiting)
    to = State.QUEUED if waiting or interrupted else State.IDLE
    return change_state(unit, session, to, principal=principal, interrupted=interrupted, resumes=0, resume_at=None)


def resolve_trouble(
    core: Core, unit: Unit, request: Request, resolution: attention_pb2.Resolution, principal: str
) -> None:
    """Continue a stuck session whose request was approved: with the request's prompt, or as
    `Sessions.resume`."""
    if resolution.WhichOneof("decision") != "approve":
        return
    session = unit.sessions.get(request.session_id)
    if prompt := json.loads(request.input).get("prompt"):
        post(unit, core.kind(session.agent), session, prompt, principal)
    else:
        resume_session(unit, session, principal)


def release(unit: Unit, session: Session, budget: Budget, principal: str) -> Session:
    """Continue a session that a budget held, if the budget allows it again."""
    if session.hold != Hold.BUDGET or budgets.exceeded(unit, session, budget) is not None:
        return session
    waiting = bool(unit.prompts.queued(session.id))
    to = State.QUEUED if waiting or session.interrupted else State.IDLE
    return change_state(unit, session, to, principal=principal)
