"""A `Core` without a daemon: a real store and real git, the test's clock, and no agents."""

import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from rametd.config import Config, Source
from rametd.environment import EnvironmentFiles
from rametd.failpoints import Failpoint
from rametd.git import Git
from rametd.keeper.local import LocalExecutor
from rametd.platform import cgroups
from rametd.services.core import Core
from rametd.services.hub import Hub
from rametd.services.index import SessionIndex
from rametd.services.operations import Operations
from rametd.services.tokens import Tokens
from rametd.store import Store


@asynccontextmanager
async def bare_core(
    root: Path,
    environ: Mapping[str, str],
    clock: Callable[[], float],
    config: Config | None = None,
    failpoint: Failpoint | None = None,
    store_clock: Callable[[], float] = time.time,
) -> AsyncIterator[Core]:
    """Yield a `Core` with all its files below ``root``."""
    store = await Store.open(root / "ramet.db", clock=store_clock)
    git = Git(environ)
    hub = Hub(store)
    state = root / "state"
    try:
        yield Core(
            config=config or Config(),
            store=store,
            git=git,
            executor=LocalExecutor(state / "agents", root / "run"),
            kinds={},
            environments=EnvironmentFiles(state / "secrets"),
            index=SessionIndex(state / "index"),
            tokens=Tokens(b"k" * 32),
            hub=hub,
            state_dir=state,
            runtime_dir=root / "run",
            owner=Source("none", ""),
            home=root / "home",
            fence=1,
            instance_id="x",
            daemon_environment=environ,
            operations=Operations(store, failpoint or Failpoint()),
            cgroup_of=cgroups.none,
            clock=clock,
            failpoint=failpoint or Failpoint(),
        )
    finally:
        hub.close()
        await git.aclose()
        await store.aclose()
