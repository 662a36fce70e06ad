"""Timers of an idle agent: end a turn that gave no result, and end the process after a while."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from rametd.domain.models import Agent, Session
from rametd.domain.states import BUSY_STATES, State
from rametd.keeper.executor import Handle
from rametd.services import events
from rametd.services.core import Core
from rametd.services.lifecycle import change_state
from rametd.store import Unit

IDLE_GRACE_S = 2.0
"""Seconds in which an agent that reports that it is idle must give its turn's result; then the
daemon ends the turn."""


class Clocks:
    """``spawn`` starts a task of the runner. ``ended`` is called with the session, in the unit of
    work that ends its turn."""

    def __init__(
        self,
        core: Core,
        agent: Agent,
        spawn: Callable[[Coroutine[Any, Any, None], str], None],
        ended: Callable[[Session], None],
    ) -> None:
        self._core = core
        self._session_id = agent.session_id
        self._generation = agent.generation
        self._handle = Handle(agent.handle)
        self._spawn = spawn
        self._ended = ended
        self._idle_timer: asyncio.TimerHandle | None = None
        self._sleep_timer: asyncio.TimerHandle | None = None
        self._sleeps_after: float | None = None

    def update(self, session: Session, agent: Agent) -> None:
        """Set or cancel the timers by the session and agent that were stored last."""
        loop = asyncio.get_running_loop()
        silent = agent.activity == "idle" and not agent.result and not agent.background and session.state in BUSY_STATES
        if silent and self._idle_timer is None:
            self._idle_timer = loop.call_later(IDLE_GRACE_S, self._spawn_end_silent_turn)
        elif not silent and self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None
        resting = session.state == State.IDLE and not agent.background
        agents = self._core.config.agents
        after = agents.sleep_after_background if agent.background_commands else agents.sleep_after
        if self._sleep_timer is not None and after != self._sleeps_after:
            self._sleep_timer.cancel()
            self._sleep_timer = None
        self._sleeps_after = after
        if resting and self._sleep_timer is None and after is not None:
            self._sleep_timer = loop.call_later(after, self._spawn_sleep)
        elif not resting and self._sleep_timer is not None:
            self._sleep_timer.cancel()
            self._sleep_timer = None

    def _spawn_end_silent_turn(self) -> None:
        self._idle_timer = None
        self._spawn(self._end_silent_turn(), "end-silent-turn")

    async def _end_silent_turn(self) -> None:
        session_id, generation = self._session_id, self._generation

        def work(unit: Unit) -> bool:
            session = unit.sessions.get(session_id)
            agent = unit.agents.get(session_id, generation)
            if agent is None or agent.activity != "idle" or agent.result or session.state not in BUSY_STATES:
                return False
            unit.agents.update(session_id, generation, result="ok")
            self._ended(change_state(unit, session, State.IDLE))
            return True

        if await self._core.store.write_for_sure(work):
            self._core.live.schedule()

    def _spawn_sleep(self) -> None:
        self._sleep_timer = None
        self._spawn(self._sleep(), "sleep")

    async def _sleep(self) -> None:
        """End the process of an idle agent. A prompt that arrives meanwhile reaches either this
        process or a new one, never both."""
        session_id, generation = self._session_id, self._generation

        def work(unit: Unit) -> bool:
            session, agent = unit.sessions.get(session_id), unit.agents.get(session_id, generation)
            if session.state != State.IDLE or unit.prompts.open(session_id) or agent is None:
                return False
            for command in agent.background_commands:
                words = (
                    f"the background command `{command.description}` was ended, as the agent was idle for long"
                    " (agents.sleep_after_background)"
                )
                events.warn(unit, session, words)
                self._ended(change_state(unit, session, State.IDLE, reason=words))
            unit.agents.update(session_id, generation, stop_intent="sleep")
            return True

        if await self._core.store.write_for_sure(work):
            await self._core.executor.end(self._handle, 5.0, epoch=self._core.fence)

    def stop(self) -> None:
        for timer in (self._idle_timer, self._sleep_timer):
            if timer is not None:
                timer.cancel()
