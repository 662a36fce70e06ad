"""The attached agents, for other services, and the event that wakes the scheduler."""

import asyncio
from collections.abc import Iterator
from typing import Protocol

from rametd.domain.models import Request, Session


class LiveAgent(Protocol):
    """One attached agent (`agents.runner.Runner`)."""

    session_id: str
    ended: asyncio.Event

    @property
    def session(self) -> Session:
        """The session as of the last stored line."""

    def wake_sender(self) -> None:
        """Write the lines that were committed for the agent."""

    def answered(self, request: Request) -> None:
        """Send the agent a person's answer, after it is committed."""

    async def follow_settings(self) -> None:
        """Set the agent's mode and model to those of the session. Raise `TimeoutError` if it does
        not answer within seconds."""

    async def interrupt(self) -> None:
        """Ask the agent to end its turn."""

    async def end(self, intent: str, grace: float) -> None:
        """End the agent with all its processes; return once its end is recorded."""

    async def agent_pid(self) -> int:
        """Return the agent's process id, 0 once it has ended."""

    async def detach(self) -> None:
        """Detach from the agent, which continues."""


class LiveAgents:
    """The attached agents by session id. ``startable`` is set when a session may have become
    startable."""

    def __init__(self) -> None:
        self.startable = asyncio.Event()
        self.running_costs: dict[str, float] = {}  # by session id; of running turns, not yet in the ledger
        self._agents: dict[str, LiveAgent] = {}

    def __len__(self) -> int:
        return len(self._agents)

    def __contains__(self, session_id: str) -> bool:
        return session_id in self._agents

    def __iter__(self) -> Iterator[LiveAgent]:
        return iter([*self._agents.values()])

    def get(self, session_id: str) -> LiveAgent | None:
        return self._agents.get(session_id)

    def add(self, agent: LiveAgent) -> None:
        self._agents[agent.session_id] = agent

    def remove(self, agent: LiveAgent) -> None:
        """Remove an agent, unless another one has replaced it."""
        if self._agents.get(agent.session_id) is agent:
            del self._agents[agent.session_id]
            self.running_costs.pop(agent.session_id, None)

    def schedule(self) -> None:
        """Wake the scheduler."""
        self.startable.set()

    def wake(self, session_id: str) -> None:
        """Wake a session's agent and the scheduler, after a commit for it."""
        if (agent := self.get(session_id)) is not None:
            agent.wake_sender()
        self.schedule()
