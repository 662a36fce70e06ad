"""What every service needs, made once by the app and handed down."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rametd.agents.base import AgentKind
from rametd.config import Config
from rametd.domain.errors import InvalidInputError
from rametd.environment import EnvironmentFiles
from rametd.failpoints import Failpoint
from rametd.git import Git
from rametd.keeper.executor import Executor
from rametd.services.hub import Hub
from rametd.services.index import SessionIndex
from rametd.services.policy import Policy
from rametd.services.tokens import Tokens
from rametd.store import Store

if TYPE_CHECKING:
    from rametd.services.runner import Runner


async def _nothing(session_id: str) -> None:
    """What `Core.after_end` does before there is a supervisor."""


async def _no_tools(session_id: str, key: str, message: Mapping[str, Any]) -> dict[str, Any] | None:
    """What `Core.use_tools` does before there is a service that has any."""
    return None


@dataclass(slots=True)
class Core:
    """The daemon's parts. ``fence`` counts its runs: a keeper refuses an older one."""

    config: Config
    store: Store
    git: Git
    executor: Executor
    kinds: Mapping[str, AgentKind]
    environments: EnvironmentFiles
    index: SessionIndex
    tokens: Tokens
    hub: Hub
    state_dir: Path
    runtime_dir: Path
    config_file: Path
    home: Path
    fence: int
    instance_id: str
    daemon_environment: Mapping[str, str]
    clock: Callable[[], float]
    loop_time: Callable[[], float] = time.monotonic
    failpoint: Failpoint = field(default_factory=Failpoint)
    runners: dict[str, "Runner"] = field(default_factory=dict)  # by session id; those attached to a living agent
    running_costs: dict[str, float] = field(default_factory=dict)  # by session id; of turns that run, beyond the ledger
    recovered: asyncio.Event = field(default_factory=asyncio.Event)  # calls are served; set once
    # Set by the app once the supervisor and the scheduler exist:
    wake: Callable[[], None] = lambda: None  # something may have become startable
    reattach: Callable[[str], None] = lambda session_id: None  # the connection to a living keeper broke
    after_end: Callable[[str], Awaitable[None]] = field(default=_nothing)  # an agent's end is on record
    use_tools: Callable[[str, str, Mapping[str, Any]], Awaitable[dict[str, Any] | None]] = field(default=_no_tools)
    cgroup_of: Callable[[str], Path | None] = lambda session_id: None

    @property
    def policy(self) -> Policy:
        """What a projection must know of the configuration."""
        return Policy(self.config, self.kinds)

    def wake_session(self, session_id: str) -> None:
        """Something was committed for a session: its living agent, or the scheduler, takes it from here."""
        runner = self.runners.get(session_id)
        if runner is not None:
            runner.wake_sender()
        self.wake()

    def kind(self, name: str) -> AgentKind:
        try:
            return self.kinds[name]
        except KeyError:
            raise InvalidInputError(
                f"there is no agent {name!r}", hint=f"use one of: {', '.join(sorted(self.kinds))}"
            ) from None
