"""What parts of the daemon do at moments of a session's life: one table, which `parts.assemble` fills."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ramet.v1 import attention_pb2

from rametd.domain.models import Request, Session
from rametd.store import Unit

Hook = Callable[[Session], Awaitable[None]]
Farewell = Callable[[Session], Awaitable[Sequence[str] | None]]
"""Runs before a worktree goes; returns warnings for whoever has it removed."""
Resolver = Callable[[Unit, Request, attention_pb2.Resolution, str], None]
"""What an answer does, by its principal, to a request that no agent waits for; runs in the unit of work that stores it."""
ToolUser = Callable[[str, str, Mapping[str, Any]], Awaitable[dict[str, Any] | None]]
"""Answers a session's call of the daemon's tools; takes the session's id, the key of the call and an MCP message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionHooks:
    """Hooks run in the order of their tuple, one after another. None has a default: a forgotten one is an error of types."""

    after_creation: tuple[Callable[[Session], None], ...]  # its row was committed
    before_launch: tuple[Hook, ...]  # its agent's process is about to start
    hurry: Callable[[str], None]  # a caller waits for the session: end the wait for its setup
    before_prompt: tuple[Hook, ...]  # run beside the launch, and end before the agent gets a prompt
    settle_checkpoint: Callable[[str], Awaitable[None]]  # returns once the end of its last turn is captured
    use_tools: ToolUser
    after_turn: tuple[Hook, ...]  # the end of a turn was committed
    before_tree_goes: tuple[Farewell, ...]  # its worktree is about to be removed

    def created(self, session: Session) -> None:
        for hook in self.after_creation:
            hook(session)

    async def launching(self, session: Session) -> None:
        for hook in self.before_launch:
            await hook(session)

    async def prompting(self, session: Session) -> None:
        for hook in self.before_prompt:
            await hook(session)

    async def turn_ended(self, session: Session) -> None:
        for hook in self.after_turn:
            await hook(session)

    async def tree_goes(self, session: Session) -> list[str]:
        """Return the warnings of all hooks."""
        return [warning for hook in self.before_tree_goes for warning in await hook(session) or ()]


class AgentTools:
    """The daemon's tools for agents. Their server needs most services, and agents need the tools: `bind` ties the knot."""

    def __init__(self) -> None:
        self._user: ToolUser | None = None

    def bind(self, user: ToolUser) -> None:
        self._user = user

    async def use(self, session_id: str, key: str, message: Mapping[str, Any]) -> dict[str, Any] | None:
        assert self._user is not None, "tools are bound before the first agent is attached"
        return await self._user(session_id, key, message)
