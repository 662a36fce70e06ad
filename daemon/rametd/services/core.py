"""What every service needs, made once by the app and handed down."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ramet.v1 import attention_pb2

from rametd.agents.base import AgentKind
from rametd.config import Config, Source
from rametd.domain.errors import InvalidInputError
from rametd.domain.models import Request, RequestKind, Session
from rametd.environment import EnvironmentFiles
from rametd.failpoints import Failpoint
from rametd.git import Git
from rametd.keeper.executor import Executor
from rametd.services.hub import Hub
from rametd.services.index import SessionIndex
from rametd.services.intake import Intake
from rametd.services.live import LiveAgents
from rametd.services.operations.runner import Operations
from rametd.services.policy import Policy
from rametd.services.rates import Rates
from rametd.services.tokens import Tokens
from rametd.services.trackers import Trackers
from rametd.store import Store, Unit

Hook = Callable[[Session], Awaitable[None]]
"""Something to be done at a moment of a session's life."""
Farewell = Callable[[Session], Awaitable[Sequence[str] | None]]
"""Something to be done before a worktree goes; what is not as it should be with that, in words for whoever has it removed."""
Resolver = Callable[[Unit, Request, attention_pb2.Resolution, str], None]
"""What an answer does, by its principal, to a request that no agent waits for."""


async def _nothing(session_id: str) -> None:
    """What `Core.after_end` does before there is a supervisor, and `Core.kept` before there is a checkpointer."""


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
    owner: Source  # the owner's configuration file as it was when the daemon started; it counts until the next start
    home: Path
    fence: int
    instance_id: str
    daemon_environment: Mapping[str, str]
    clock: Callable[[], float]
    loop_time: Callable[[], float] = time.monotonic
    failpoint: Failpoint = field(default_factory=Failpoint)
    live: LiveAgents = field(default_factory=LiveAgents)
    newcomers: dict[Path, str] = field(default_factory=dict)  # ids of repositories without a row (`services.repos`)
    rates: Rates = field(default_factory=Rates)
    recovered: asyncio.Event = field(default_factory=asyncio.Event)  # calls are served; set once
    # Set by the app once the supervisor and the scheduler exist:
    reattach: Callable[[str], None] = lambda session_id: None  # the connection to a living keeper broke
    after_end: Callable[[str], Awaitable[None]] = field(default=_nothing)  # an agent's end is on record
    use_tools: Callable[[str, str, Mapping[str, Any]], Awaitable[dict[str, Any] | None]] = field(default=_no_tools)
    hurry: Callable[[str], None] = lambda session_id: None  # somebody waits for it: its setup is no longer waited for
    cgroup_of: Callable[[str], Path | None] = lambda session_id: None
    keep: Callable[[str], None] = lambda session_id: None  # the end of its last turn is to be kept as a checkpoint
    kept: Callable[[str], Awaitable[None]] = field(default=_nothing)  # the same; returns once it is, or was given up
    prepared: Callable[[str], Awaitable[None]] = field(
        default=_nothing
    )  # returns once its setup is over, where one runs
    still: Callable[[str], AbstractAsyncContextManager[None]] = lambda session_id: nullcontext()  # its files are let be
    # What parts of the daemon do at moments of a session's life, in order; filled by the app:
    after_creation: list[Callable[[Session], None]] = field(default_factory=list)  # its row was committed
    before_launch: list[Hook] = field(default_factory=list)  # its agent's process is about to be made
    before_prompt: list[Hook] = field(
        default_factory=list
    )  # done beside that, and over before the agent gets anything to do
    after_turn: list[Hook] = field(default_factory=list)  # a turn's end was committed
    before_tree_goes: list[Farewell] = field(default_factory=list)  # its worktree is about to be removed
    # What an answer to a request does that no agent waits for, inside the unit of work that stores it:
    resolvers: dict[RequestKind, Resolver] = field(default_factory=dict)

    trackers: Trackers = field(init=False)  # of the worktrees of live sessions
    operations: Operations = field(init=False)
    intake: Intake = field(init=False)  # of the agents' lines

    def __post_init__(self) -> None:
        self.intake = Intake(self.store)
        self.trackers = Trackers(self.store, self.git, self.recovered)
        self.operations = Operations(self.store, self.failpoint)

    @property
    def policy(self) -> Policy:
        """What a projection must know of the configuration."""
        return Policy(self.config, self.kinds)

    def kind(self, name: str) -> AgentKind:
        try:
            return self.kinds[name]
        except KeyError:
            raise InvalidInputError(
                f"there is no agent {name!r}", hint=f"use one of: {', '.join(sorted(self.kinds))}"
            ) from None
