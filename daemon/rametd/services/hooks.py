"""Hooks of sessions: one table, which `parts.assemble` fills."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ramet.v1 import attention_pb2

from rametd.domain.models import Request, Session
from rametd.services.tasks import Tasks
from rametd.store import Unit

Hook = Callable[[Session], Awaitable[None]]
BeforeRemoval = Callable[[Session], Awaitable[Sequence[str] | None]]
"""Runs before the removal of a worktree; returns warnings for the caller of the removal."""
Resolver = Callable[[Unit, Request, attention_pb2.Resolution, str], None]
"""Applies a person's answer to a request of the daemon, in the unit of work that stores the
answer."""
ToolUser = Callable[[str, str, Mapping[str, Any]], Awaitable[dict[str, Any] | None]]
"""Answers a call of the daemon's tools; takes the session's id, the key of the call and an MCP
message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionHooks:
    """Hooks run one after another, in the order of their tuple. None has a default, so that mypy
    finds a forgotten one."""

    after_creation: tuple[Callable[[Session], None], ...]  # after its row is committed
    before_launch: tuple[Hook, ...]  # before its agent's process starts
    hurry: Callable[[str], None]  # do not wait for its setup: a caller stops or removes the session
    before_prompt: tuple[Hook, ...]  # during the launch, before the agent gets a prompt
    settle_checkpoint: Callable[[str], Awaitable[None]]  # returns once the checkpoint of its last turn exists
    use_tools: ToolUser
    after_turn: tuple[Hook, ...]  # after the end of a turn is committed
    after_turns: Tasks  # runs them: neither the end of the agent nor that of a call cancels them
    before_tree_removal: tuple[BeforeRemoval, ...]  # before its worktree is removed

    def created(self, session: Session) -> None:
        for hook in self.after_creation:
            hook(session)

    async def launching(self, session: Session) -> None:
        for hook in self.before_launch:
            await hook(session)

    async def prompting(self, session: Session) -> None:
        for hook in self.before_prompt:
            await hook(session)

    def turn_ended(self, session: Session) -> None:
        self.after_turns.queue(session.id, self._after_turn(session))

    async def _after_turn(self, session: Session) -> None:
        for hook in self.after_turn:
            await hook(session)

    async def tree_removal(self, session: Session) -> list[str]:
        """Return the warnings of all hooks."""
        return [warning for hook in self.before_tree_removal for warning in await hook(session) or ()]


class AgentTools:
    """The daemon's tools for agents. `bind` sets their server later, since it needs services that
    need this object."""

    def __init__(self) -> None:
        self._user: ToolUser | None = None

    def bind(self, user: ToolUser) -> None:
        self._user = user

    async def use(self, session_id: str, key: str, message: Mapping[str, Any]) -> dict[str, Any] | None:
        assert self._user is not None, "tools are bound before the first agent is attached"
        return await self._user(session_id, key, message)
