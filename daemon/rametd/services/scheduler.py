"""Who works next: queued sessions take slots by priority, fair between repositories, when those that go before them have ended well."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from rametd.domain.models import DAEMON, Agent, AgentState, Hold, PromptState, Session
from rametd.domain.states import SLOT_STATES, State
from rametd.services import budgets
from rametd.services.core import Core
from rametd.services.delivery import deliver
from rametd.services.lifecycle import change_state
from rametd.services.persistence import write_for_sure
from rametd.services.removal import removal_of
from rametd.services.sessions import release
from rametd.services.supervisor import Supervisor
from rametd.store import Unit

PERIOD_S = 30.0
DONE_STATES = frozenset({State.IDLE, State.ARCHIVED})


class Scheduler:
    """One task; `wake` it whenever something may have become startable."""

    def __init__(self, core: Core, supervisor: Supervisor) -> None:
        self._core = core
        self._supervisor = supervisor
        self._news = asyncio.Event()

    def wake(self) -> None:
        self._news.set()

    async def run(self) -> None:
        while True:
            # Limits are lifted and days end without anybody telling.
            with suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), PERIOD_S)
            self._news.clear()
            to_launch, to_send = await write_for_sure(self._core.store, self._claim)
            for session, agent in to_launch:
                self._supervisor.launch(session, agent)
            for session_id in to_send:
                runner = self._core.runners.get(session_id)
                if runner is not None:
                    runner.wake_sender()

    def _claim(self, unit: Unit) -> tuple[list[tuple[Session, Agent]], list[str]]:
        """Give free slots away: returns sessions whose agent is to be started, and those whose living agent was given work."""
        self._release_held(unit)
        counts = unit.sessions.counts()
        free = self._core.config.max_working - sum(counts[state] for state in SLOT_STATES)
        to_launch: list[tuple[Session, Agent]] = []
        to_send: list[str] = []
        for session in unit.sessions.queued():
            if removal_of(unit, session.id) is not None:
                continue  # no process may start in a worktree that is going
            if (blocked := blocked_by(unit, session)) is not None:
                if session.state_reason != blocked:
                    change_state(unit, session, State.QUEUED, reason=blocked)
                continue
            queued = any(prompt.state == PromptState.QUEUED for prompt in unit.prompts.open(session.id))
            if not queued and not session.interrupted:
                change_state(unit, session, State.IDLE)
                continue
            spent = budgets.exceeded(unit, session, self._core.config.budget)
            if spent is not None:
                reason = f"{spent}: {budgets.how_to_raise(session, spent)}"
                change_state(unit, session, State.PAUSED, reason=reason, hold=Hold.BUDGET)
                continue
            if free <= 0:
                break
            agent = unit.agents.latest(session.id)
            if agent is not None and agent.state in {AgentState.STARTING, AgentState.LIVE}:
                if agent.stop_intent:  # it is being ended; its end wakes us
                    continue
                deliver(unit, self._core.kind(session.agent), session, begin=True)
                to_send.append(session.id)
            else:
                to_launch.append(self._begin(unit, session))
            free -= 1
        return to_launch, to_send

    def _release_held(self, unit: Unit) -> None:
        """Queue what a usage limit or a budget held and holds no longer."""
        for session in unit.sessions.list(states={State.PAUSED}):
            if session.hold == Hold.LIMIT and session.resume_at is not None and session.resume_at <= unit.now:
                change_state(unit, session, State.QUEUED, resume_at=None)
            elif session.hold == Hold.BUDGET:
                release(unit, session, self._core.config.budget, DAEMON)

    def _begin(self, unit: Unit, session: Session) -> tuple[Session, Agent]:
        generation = session.generation + 1
        session = change_state(unit, session, State.STARTING, reason=session.state_reason, generation=generation)
        agent = unit.agents.insert(
            Agent(
                session_id=session.id,
                generation=generation,
                state=AgentState.STARTING,
                handle="",
                journal_offset=0,
                stdin_offset=0,
                initialize_reply=b"",
                hook_table="",
                cli_version="",
                start_time=unit.now,
                end_time=None,
                exit_status="",
                stop_intent="",
                mode=session.mode,
                model=session.model,
            )
        )
        return session, agent


def blocked_by(unit: Unit, session: Session) -> str | None:
    """Why a session may not start yet, or None. A predecessor that was removed no longer blocks."""
    before: Sequence[Session | None] = [unit.sessions.find(identity) for identity in session.after]
    for each in before:
        if each is None or (each.state in DONE_STATES and each.turns and not unit.prompts.open(each.id)):
            continue
        if each.state == State.FAILED:
            return f"held: {each.name}, which goes before it, failed"
        return f"waits for {each.name}"
    return None
