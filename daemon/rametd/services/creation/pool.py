"""The pool: prepared worktrees, so that a session starts in milliseconds.

A claim deletes a spare's row in the unit of work that stores the creation's operation. From then on
the worktree belongs to the creation. `spares` describes the work on a single spare, and how it
avoids claims.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import structlog

from rametd.config import Config
from rametd.domain.errors import BadConfigError, NotFoundError, RametError, UnbornBranchError
from rametd.domain.models import Repo
from rametd.domain.spares import Spare, SpareState
from rametd.git import RepositoryInfo
from rametd.platform.files import free_bytes, tree_bytes
from rametd.services.agents.warm import Warmer
from rametd.services.commands.scripts import prepared_by
from rametd.services.core import Core
from rametd.services.creation.spares import Prepare, Spares
from rametd.services.repos import info_of
from rametd.services.trust.settings import for_repository
from rametd.services.worktrees.places import tree_of
from rametd.store import Reader

log = structlog.get_logger()

PERIOD_S = 60.0
"""Interval in seconds at which the pool checks bases; for each repository with spares libgit2 reads
one file."""
SETTLE_S = 1.0
"""Seconds from a session's creation to the refill."""
SMALL_DIFFERENCE = 2000
"""Maximum number of files in which a claimed spare may differ from the session's commit. A claim
rewrites them; beyond this number a new worktree is created."""


@dataclass(frozen=True, slots=True)
class PoolStatus:
    """The spares of a repository, with their sizes in bytes. ``held_reason``: why the pool creates
    none, "" if it does."""

    spares: tuple[tuple[Spare, int], ...]
    size: int
    warm_agents: int
    held_reason: str
    disk_free: int
    claims: int
    misses: int


class Pool:
    """The spares of all repositories. `run` maintains them, one step at a time, never while a
    session is being created."""

    def __init__(self, core: Core, warmer: Warmer, prepare: Prepare, *, period: float = PERIOD_S) -> None:
        self.warmer = warmer
        self.spares = Spares(core, warmer, prepare)
        self._core = core
        self._period = period
        self._to_check: set[str] = set()  # repositories to check
        self._wake = asyncio.Event()
        self._locks: dict[str, asyncio.Lock] = {}  # by repository: one upkeep at a time
        self._drained: set[str] = set()  # repositories without spares until their next session
        self._upkeep: dict[str, asyncio.Task[None]] = {}
        self._running: asyncio.Task[None] | None = None
        self._held: dict[str, str] = {}
        self._claims: Counter[str] = Counter()
        self._misses: Counter[str] = Counter()

    def start(self) -> None:
        """Start maintaining the pools."""
        self._running = asyncio.create_task(self.run(), name="pool")
        self._running.add_done_callback(_log_failure)

    async def stop(self) -> None:
        """Stop the upkeep; return once unfinished spares are removed."""
        for task in (self._running, *self._upkeep.values()):
            if task is not None:
                task.cancel()
                await asyncio.wait([task])
        await self.spares.handwork.close()

    # For creations

    async def take(self, repo: Repo, info: RepositoryInfo, config: Config, commit: str) -> Spare | None:
        """Take a spare for a session at ``commit``, None if none fits. Until `release`, no other
        session gets it."""
        if not config.pool.size:
            return None
        core = self._core
        inherits, settings = await core.git.spares.inheritance(info), prepared_by(config)
        spares = await core.store.read(lambda reader: reader.spares.list(repo.id))
        # Exclude spares that a person works in: a failed claim would remove their files.
        fitting = [each for each in spares if each.fits(inherits, settings) and await self.spares.is_intact(each, info)]
        differences = {
            each: await core.git.commits.files_between(info, each, commit)
            for each in {spare.commit for spare in fitting}
        }
        for spare in sorted(fitting, key=lambda each: (differences[each.commit], not self.warmer.has(each.id))):
            if spare.id not in self.spares.in_use and differences[spare.commit] <= SMALL_DIFFERENCE:
                self.spares.in_use.add(spare.id)
                self._claims[repo.id] += 1
                return spare
        self._misses[repo.id] += 1
        return None

    def release(self, spare: Spare) -> None:
        """End a claim. If the spare's row still exists, it is a spare again."""
        self.spares.cold.pop(spare.id, None)
        self.spares.in_use.discard(spare.id)

    def session_made(self, repo_id: str) -> None:
        """A session was created: refill the pool, which may have given a spare."""
        self._drained.discard(repo_id)
        self.wake(repo_id)

    def wake(self, repo_id: str) -> None:
        """Check a repository soon."""
        self._to_check.add(repo_id)
        self._wake.set()

    # For people

    async def status(self, repo: Repo) -> PoolStatus:
        """The pool of a repository, registered or not. Raises `RepoNotFoundError` if the repository
        is gone from the disk."""
        core = self._core
        info = await info_of(core, repo)
        config, held = core.config, ""
        try:
            config = await for_repository(core, repo, info)
        except BadConfigError as error:  # shown as the reason instead
            held = error.message
        registered, spares = await core.store.read(
            lambda reader: (reader.repos.by_common_dir(repo.common_dir), reader.spares.list(repo.id))
        )
        sizes = [await asyncio.to_thread(tree_bytes, spare.path) for spare in spares]
        if not (held or config.pool.size):
            held = "pool.size is 0"
        elif not held and registered is None:
            held = "it fills with the first session of the repository, or with `rametctl pool fill`"
        elif not held and repo.id in self._drained:
            held = "it was drained; the next session fills it again"
        return PoolStatus(
            spares=tuple(zip(spares, sizes, strict=True)),
            size=config.pool.size,
            warm_agents=config.pool.warm_agents,
            held_reason=held or self._held.get(repo.id, ""),
            disk_free=await asyncio.to_thread(free_bytes, self._place(repo)),
            claims=self._claims[repo.id],
            misses=self._misses[repo.id],
        )

    async def fill(self, repo: Repo) -> None:
        """Create missing spares and update the others now."""
        self._drained.discard(repo.id)
        await self._tend(repo.id)

    async def drain(self, repo: Repo) -> list[Spare]:
        """Remove all spares of a repository, and create none until its next session. Return the
        removed ones."""
        self._drained.add(repo.id)
        if (upkeep := self._upkeep.get(repo.id)) is not None:
            upkeep.cancel()
        async with self._lock_of(repo.id):
            spares = await self._core.store.read(lambda reader: reader.spares.list(repo.id))
            return [spare for spare in spares if await self.spares.remove(spare, repo)]

    # Upkeep

    async def run(self) -> None:
        """Remove spares that a killed daemon left unfinished, then maintain the pools until
        cancelled."""
        for spare in await self._core.store.read(lambda reader: reader.spares.list()):
            if spare.state != SpareState.READY:
                await self._guarded(self.spares.remove_unfinished(spare), spare.repo_id)
        while True:
            self._to_check |= await self._core.store.read(self._in_use)
            while self._to_check:
                repo_id = self._to_check.pop()
                await self._guarded(self._tend(repo_id), repo_id)
            self._wake.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), self._period)
                # Let the agent of the new session start first: it must not share the machine with a
                # refill. More sessions within this time do not delay the refill further.
                await asyncio.sleep(SETTLE_S)

    @staticmethod
    def _in_use(reader: Reader) -> set[str]:
        # Read stamps only: reading a thousand whole rows at a start would delay the first calls.
        sessions = reader.sessions.stamps()
        return {session.repo_id for session in sessions} | {spare.repo_id for spare in reader.spares.list()}

    async def _guarded(self, work: Awaitable[object], repo_id: str) -> None:
        """Log a failure of the upkeep and store it for `status`; the next round tries again."""
        try:
            await work
        except (RametError, OSError) as error:
            words = error.message if isinstance(error, RametError) else str(error)
            if not isinstance(error, BadConfigError):  # `status` reads the configuration itself
                self._held[repo_id] = words
            log.warning("pool", repo=repo_id, error=words)

    async def _tend(self, repo_id: str) -> None:
        """Bring a repository's pool up to date; `drain` cancels it."""
        while (earlier := self._upkeep.get(repo_id)) is not None:
            await asyncio.wait([earlier])
        task = self._upkeep[repo_id] = asyncio.create_task(self._keep_up(repo_id), name=f"pool {repo_id}")
        try:
            await asyncio.wait([task])
        finally:
            # Also when the daemon stops: remove an unfinished spare before the loop ends.
            task.cancel()
            await asyncio.wait([task])
            del self._upkeep[repo_id]
        if not task.cancelled():
            task.result()

    async def _keep_up(self, repo_id: str) -> None:
        core = self._core
        async with self._lock_of(repo_id):
            try:
                repo = await core.store.read(lambda reader: reader.repos.get(repo_id))
            except NotFoundError:
                return
            spares = await core.store.read(lambda reader: reader.spares.list(repo_id))
            info = await info_of(
                core, repo
            )  # raises if the repository is missing: its spares stay, since they may hold a person's work
            config = await for_repository(core, repo, info)
            keep = 0 if repo_id in self._drained else config.pool.size
            held = await self._obstacle(repo, config) if keep else ""
            self._held[repo_id] = held
            if held:
                keep = 0
            try:
                commit = (await core.git.branches.resolve_base(info)).commit
            except UnbornBranchError:
                self._held[repo_id] = "the repository has no commit to start from"
                keep = 0
                commit = ""
            await self._match(repo, info, config, spares, keep, commit)

    async def _match(
        self, repo: Repo, info: RepositoryInfo, config: Config, spares: list[Spare], keep: int, commit: str
    ) -> None:
        """Have ``keep`` spares at ``commit``: remove extra and unfit ones, update the others,
        create the missing."""
        inherits, settings = await self._core.git.spares.inheritance(info), prepared_by(config)
        good: list[Spare] = []
        for spare in spares:
            if spare.fits(inherits, settings) and len(good) < keep and await self.spares.is_intact(spare, info):
                good.append(spare)
            else:
                await self.spares.remove(spare, repo)
        left = sum(
            [each.commit == commit or await self.spares.update(each, repo, info, commit, config) for each in good]
        )
        for _ in range(keep - left):
            if reason := await self._obstacle(repo, config):
                self._held[repo.id] = reason
                return
            await self.spares.make(repo, info, commit, inherits, config)
        await self._warm_up(repo, config)

    async def _warm_up(self, repo: Repo, config: Config) -> None:
        """Have as many warm agents in the spares as configured, the oldest spares first."""
        spares = await self._core.store.read(lambda reader: reader.spares.list(repo.id))
        ready = [spare for spare in spares if spare.state == SpareState.READY]
        for spare in ready[config.pool.warm_agents :]:
            await self.spares.cool(spare)
        for spare in ready[: config.pool.warm_agents]:
            await self.spares.warm(spare, repo)

    async def _obstacle(self, repo: Repo, config: Config) -> str:
        """Why the pool cannot have spares now; "" if it can."""
        free = await asyncio.to_thread(free_bytes, self._place(repo))
        if free < config.pool.min_free:
            return f"{free >> 20:,} MiB are free on the disk, and pool.min_free is {config.pool.min_free >> 20:,} MiB"
        return ""

    def _place(self, repo: Repo) -> Path:
        return tree_of(self._core, repo, "-").parent

    def _lock_of(self, repo_id: str) -> asyncio.Lock:
        return self._locks.setdefault(repo_id, asyncio.Lock())


def _log_failure(task: "asyncio.Task[None]") -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("the upkeep of pools failed; sessions start without spares", exc_info=error)
