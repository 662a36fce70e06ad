"""Checks of merge queues. Each runs in the queue's own worktree, after the setup if that is due."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rametd.config import Config
from rametd.domain.errors import CapReachedError
from rametd.domain.models import Repo, SetupState
from rametd.git import LandingTree
from rametd.services import ports
from rametd.services.commands.scripts import CheckResult, digest_of
from rametd.services.commands.setup import Setup
from rametd.services.commands.terminals import Remember
from rametd.services.core import Core


@dataclass(frozen=True, slots=True)
class Checked:
    """Result of a check. ``words`` describes the failure, "" without one. ``output`` is the end of
    the output."""

    words: str
    output: str
    in_setup: bool = False  # the setup failed; the check has not run

    @property
    def passed(self) -> bool:
        return not self.words


class Checker:
    """Runs checks under keepers. All processes of a check end with it, and with the daemon."""

    def __init__(self, core: Core, setup: Setup) -> None:
        self._core = core
        self._setup = setup
        self._set_up: dict[str, str] = {}  # by worktree: digest of its setup

    async def run(
        self, tree: LandingTree, repo: Repo, config: Config, target: str, commands: Sequence[str], note: Remember
    ) -> Checked:
        """Run ``commands`` one after another, with one time limit for all; ``note`` gets the stored
        command."""
        variables = {"CI": "1", "RAMET_TARGET": target, **await self._ports(config)}
        unfit = await self._prepare(tree, repo, config, variables)
        if unfit is not None and not unfit.ok:
            return Checked(f"the setup failed: {unfit.words}", unfit.tail, in_setup=True)
        within = config.land.check_timeout
        result = await self._setup.check(commands, tree.path, repo, timeout=within, variables=variables, remember=note)
        return Checked("" if result.ok else result.words or "it failed without output", result.tail)

    async def _prepare(
        self, tree: LandingTree, repo: Repo, config: Config, variables: Mapping[str, str]
    ) -> CheckResult | None:
        """Run the setup, unless it ran for the same files and its results exist. Return a failure,
        else None."""
        digest = await asyncio.to_thread(digest_of, tree.path, config)
        if not tree.cleaned and self._set_up.get(str(tree.path)) == digest:
            return None
        self._set_up.pop(str(tree.path), None)
        done = await self._setup.run_in(tree.path, repo, config, variables=variables)
        if not done.ok:
            return CheckResult(ok=False, status="", words=done.words, tail="")
        if done.state == SetupState.NONE and config.setup:
            # The setup uses variables of a session, so `run_in` skipped it; the check needs it now.
            result = await self._setup.check(
                config.setup, tree.path, repo, timeout=config.setup_timeout, variables=variables
            )
            if not result.ok:
                return result
        self._set_up[str(tree.path)] = digest
        return None

    async def _ports(self, config: Config) -> dict[str, str]:
        """Variables with ports that no session owns. A session that is created during the check may
        get the same ports."""
        try:
            base, count = await self._core.store.read(lambda reader: ports.allocate(reader, config))
        except CapReachedError:
            return {}
        return {f"RAMET_PORT_{index}": str(base + index) for index in range(count)}
