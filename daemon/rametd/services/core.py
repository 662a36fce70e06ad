"""Values and mechanisms of one run of the daemon, for every service."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rametd.agents.base import AgentKind
from rametd.config import Config, Source
from rametd.domain.errors import InvalidInputError
from rametd.environment import EnvironmentFiles
from rametd.failpoints import Failpoint
from rametd.git import Git
from rametd.keeper.executor import Executor
from rametd.services.hub import Hub
from rametd.services.index import SessionIndex
from rametd.services.live import LiveAgents
from rametd.services.operations import Operations
from rametd.services.tokens import Tokens
from rametd.store import Store


@dataclass(frozen=True, slots=True)
class Policy:
    config: Config
    kinds: Mapping[str, AgentKind]


MINUTE = 60.0
_MOST_KEYS = 10_000  # beyond this number the oldest keys are deleted


class Rates:
    """Limits how often a session may do something. A restart resets the counts, which are in
    memory."""

    def __init__(self) -> None:
        self._taken: dict[Hashable, deque[float]] = {}

    def take(self, key: Hashable, most: int, now: float) -> bool:
        """Count one more at ``now`` (seconds). If the count of the last minute is ``most``, return
        False and count nothing."""
        taken = self._taken.pop(key, None) or deque()
        while taken and taken[0] <= now - MINUTE:
            taken.popleft()
        self._taken[key] = taken
        while len(self._taken) > _MOST_KEYS:
            del self._taken[next(iter(self._taken))]
        if len(taken) >= most:
            return False
        taken.append(now)
        return True


@dataclass(slots=True, eq=False)
class Core:
    """Values and mechanisms of one run of the daemon.

    ``fence``: number of the run; a keeper refuses an older one.
    """

    config: Config  # replaced when the file changes, as `owner` is
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
    owner: Source  # the owner's configuration file when the daemon started
    home: Path
    fence: int
    instance_id: str
    daemon_environment: Mapping[str, str]
    operations: Operations
    cgroup_of: Callable[[str], Path | None]  # the control group of a session's or command's processes
    clock: Callable[[], float]
    loop_time: Callable[[], float] = time.monotonic
    failpoint: Failpoint = field(default_factory=Failpoint)
    live: LiveAgents = field(default_factory=LiveAgents)
    newcomers: dict[Path, str] = field(default_factory=dict)  # ids of repositories without a row (`services.repos`)
    rates: Rates = field(default_factory=Rates)
    on_configured: list[Callable[[], None]] = field(default_factory=list)  # called when `config` was replaced
    recovered: asyncio.Event = field(default_factory=asyncio.Event)  # set once the daemon serves calls

    @property
    def policy(self) -> Policy:
        """The part of the configuration that projections need."""
        return Policy(self.config, self.kinds)

    def kind(self, name: str) -> AgentKind:
        try:
            return self.kinds[name]
        except KeyError:
            raise InvalidInputError(
                f"there is no agent {name!r}", hint=f"use one of: {', '.join(sorted(self.kinds))}"
            ) from None
