"""Work on one spare: create it, move it to another commit, give it a warm agent, remove it.

The row is stored before the directory exists, and deleted after the directory. Its state is the
intent: a daemon removes an unfinished spare that it finds.

`Spares.in_use` has the ids of spares that a claim or the upkeep uses. Both test and set it without
an `await` in between, so that the upkeep never moves a spare to another commit while a creation
claims it.

A spare in which a person has worked belongs to that person: the pool gives it up and logs a
warning. The upkeep checks all files before it changes or removes a spare. A claim has no time for
that: it checks HEAD, and the files only if a tracker reports writes. Without a tracker the files
are checked after the session has started, and the session gets a warning about changed ones.
"""

import asyncio
import shlex
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import structlog
from ramet.v1 import event_pb2

from rametd.config import Config
from rametd.domain.errors import NotFoundError, RametError, WorktreeChangedError
from rametd.domain.models import Repo, Session, SetupState
from rametd.domain.spares import Spare, SpareState
from rametd.domain.text import listed
from rametd.git import RepositoryInfo
from rametd.services import events
from rametd.services.agents.warm import Warmer
from rametd.services.commands.scripts import prepared_by
from rametd.services.core import Core
from rametd.services.ids import new_id
from rametd.services.repos import info_of
from rametd.services.tasks import Tasks
from rametd.services.worktrees.places import tree_of

NAMED = 5
"""Files that a warning names."""
SETTLE_S = 2.0
"""Seconds from a session's creation to the check of its files, which must not slow down the first
prompt."""


class Handwork:
    """Logs warnings about files that a person changed in a spare: on the repository, or on the
    session that got the spare."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._looks = Tasks("look")

    async def stays(self, reasons: Sequence[str], path: Path, repo_id: str) -> None:
        """Warn that a spare stays in place; ``reasons`` has one line each."""
        for words in reasons:
            adopt = shlex.join(("rametctl", "adopt", str(path)))
            await self._warn(
                f"{words}; it stays, and is no longer a spare. To create a session there: {adopt}", repo_id
            )

    def look_after(self, session: Session, info: RepositoryInfo) -> None:
        """Check in the background whether a session got changed files with its spare."""
        self._looks.start(session.id, self._look(session, info))

    async def close(self) -> None:
        await self._looks.close()

    async def _look(self, session: Session, info: RepositoryInfo) -> None:
        await asyncio.sleep(SETTLE_S)
        where = (session.worktree, session.branch, session.base_commit)
        try:
            left = await self._core.git.spares.changed_before(info, *where, session.create_time)
        except RametError as error:  # its tree may be gone already
            log.warning("spare", id=session.id, error=error.message)
            return
        if left:
            words = "files in this worktree were changed before the session started"
            await self._warn(f"{words}: {listed(list(left), NAMED)}", session.repo_id, session.id)

    async def _warn(self, words: str, repo_id: str, session_id: str = "") -> None:
        log.warning("changed files in a spare", words=words)
        event = events.make(event_pb2.Warning(message=words), session_id=session_id, repo_id=repo_id)
        await self._core.store.write(lambda unit: unit.events.append(event))


log = structlog.get_logger()


class Prepared(Protocol):
    """Result of a setup. ``digest``: of the files that it depends on. ``words`` describes a
    failure. ``warnings`` has a line for each path that was not carried."""

    @property
    def state(self) -> SetupState: ...
    @property
    def digest(self) -> str: ...
    @property
    def words(self) -> str: ...
    @property
    def warnings(self) -> tuple[str, ...]: ...


Prepare = Callable[[Path, Repo, Config], Awaitable[Prepared]]
"""Copies ignored files into a worktree and runs its setup (`Setup.run_in`)."""


class Spares:
    """Work on spares, one at a time. None starts while a session is being created."""

    def __init__(self, core: Core, warmer: Warmer, prepare: Prepare) -> None:
        self.in_use: set[str] = set()  # spares in use
        self.cold: dict[str, str] = {}  # by spare: why its warm agent did not start
        self.handwork = Handwork(core)
        self._core = core
        self._warmer = warmer
        self._prepare = prepare
        self._marks: dict[str, int] = {}  # by spare with a tracker: the tracker's mark before any change
        self._creations = 0
        self._quiet = asyncio.Event()  # set while no session is being created
        self._quiet.set()
        self._one = asyncio.Semaphore(1)
        self.begun = asyncio.Event()
        """Set when the first creation in this run of the daemon begins."""

    @contextmanager
    def creating(self) -> Iterator[None]:
        """Enclose the creation of a session: no upkeep starts inside."""
        self._creations += 1
        self.begun.set()
        self._quiet.clear()
        try:
            yield
        finally:
            self._creations -= 1
            if not self._creations:
                self._quiet.set()

    async def is_intact(self, spare: Spare, info: RepositoryInfo) -> bool:
        """Whether a spare is at its commit with all files, and, as far as a tracker knows,
        unchanged."""
        git = self._core.git
        try:
            await git.spares.verify(spare.path, spare.commit)
            found = await git.spares.work(info, spare.path, spare.commit) if await self._is_written_to(spare) else None
        except RametError as error:
            found = error.message
        if found is not None:
            log.warning("spare", id=spare.id, error=found)
        return found is None

    async def _is_written_to(self, spare: Spare) -> bool:
        tracker, mark = self._core.git.trackers.get(spare.path), self._marks.get(spare.id)
        if tracker is None or mark is None:
            return False
        changed = await tracker.since(mark)
        return changed is None or bool(changed)

    def claimed(self, session: Session, info: RepositoryInfo) -> None:
        """Check the files of a claimed spare later, unless a tracker knows them."""
        if self._marks.pop(session.id, None) is None:
            self.handwork.look_after(session, info)

    async def make(self, repo: Repo, info: RepositoryInfo, commit: str, inherits: str, config: Config) -> None:
        """Create a spare. If git fails, remove what exists of it and raise git's error."""
        core = self._core
        await self._quiet.wait()
        spare_id = new_id()
        spare = Spare(
            id=spare_id,
            repo_id=repo.id,
            path=tree_of(core, repo, spare_id),
            commit=commit,
            state=SpareState.MAKING,
            reason="",
            inherits=inherits,
            setup=SetupState.NONE,
            setup_digest="",
            settings=prepared_by(config),
            warnings=(),
            create_time=core.clock(),
        )
        async with self._one:
            with self._use(spare):
                await core.store.write(lambda unit: unit.spares.add(spare))
                core.failpoint.hit("spare.intended")
                await self._work(spare, repo, self._filled(spare, repo, info, config))

    async def _filled(self, spare: Spare, repo: Repo, info: RepositoryInfo, config: Config) -> Spare:
        warnings = await self._core.git.spares.make(info, spare.path, spare.commit)
        self._core.failpoint.hit("spare.made")
        return await self._prepared(spare, repo, info, config, warnings)

    async def update(self, spare: Spare, repo: Repo, info: RepositoryInfo, commit: str, config: Config) -> bool:
        """Move a spare to ``commit``, unless it is in use; remove it if that fails. Return whether
        it is still a spare."""
        core = self._core
        await self._quiet.wait()
        async with self._one:
            if spare.id in self.in_use:
                return False
            with self._use(spare):
                # A finished claim deleted the row before it released the spare.
                if not await self._mark(spare, SpareState.UPDATING):
                    return False
                core.failpoint.hit("spare.update-intended")
                try:
                    await self._work(spare, repo, self._brought_to(spare, repo, info, commit, config))
                except WorktreeChangedError:
                    return False
        return True

    async def _brought_to(self, spare: Spare, repo: Repo, info: RepositoryInfo, commit: str, config: Config) -> Spare:
        await self._warmer.end(spare.id)  # its agent was started at the old commit
        await self._unwatch(spare)
        warnings = await self._core.git.spares.update(info, spare.path, spare.commit, commit, background=True)
        self._core.failpoint.hit("spare.updated")
        return await self._prepared(replace(spare, commit=commit), repo, info, config, warnings)

    async def _prepared(
        self, spare: Spare, repo: Repo, info: RepositoryInfo, config: Config, warnings: Sequence[str]
    ) -> Spare:
        prepared = await self._prepare(spare.path, repo, config)
        warnings = (*warnings, *prepared.warnings)
        for words in filter(None, (*warnings, prepared.words)):
            log.warning("spare", id=spare.id, warning=words)
        spare = replace(spare, setup=prepared.state, setup_digest=prepared.digest, warnings=warnings)
        await self._core.git.spares.note(info, spare.path, spare.commit)
        return spare

    async def _work(self, spare: Spare, repo: Repo, work: Awaitable[Spare]) -> None:
        """Await ``work`` and store the result; remove the spare if it fails or is cancelled."""
        try:
            done = await work
        except (RametError, OSError, asyncio.CancelledError):
            await asyncio.shield(self._destroy(spare, repo, unfinished=True))
            raise
        await self._core.store.write(
            lambda unit: unit.spares.update(
                spare.id,
                state=SpareState.READY,
                commit=done.commit,
                setup=done.setup,
                setup_digest=done.setup_digest,
                warnings=done.warnings,
            )
        )
        self._core.failpoint.hit("spare.ready")

    async def remove_unfinished(self, spare: Spare) -> None:
        """Remove a spare that a killed daemon left unfinished."""
        repo = await self._core.store.read(lambda reader: reader.repos.get(spare.repo_id))
        with self._use(spare):
            await self._destroy(spare, repo, unfinished=spare.state in {SpareState.MAKING, SpareState.UPDATING})

    async def remove(self, spare: Spare, repo: Repo) -> bool:
        """Remove a spare, unless it is in use or claimed, or a person has worked in it. Return
        whether it was removed."""
        if spare.id in self.in_use:
            return False
        with self._use(spare):
            return await self._destroy(spare, repo)

    async def _mark(self, spare: Spare, state: SpareState) -> bool:
        return await self._core.store.write(lambda unit: unit.spares.update(spare.id, state=state))

    async def _destroy(self, spare: Spare, repo: Repo, *, unfinished: bool = False) -> bool:
        """Remove a spare. Return False if it stays because a person has worked in it."""
        core = self._core
        if not await self._mark(spare, SpareState.REMOVING):
            return False
        core.failpoint.hit("spare.removal-intended")
        await self._warmer.end(spare.id)
        self._marks.pop(spare.id, None)
        try:
            info = await info_of(core, repo)
        except NotFoundError:
            # Without the repository git cannot tell whether the spare holds work.
            there = await asyncio.to_thread(spare.path.exists)
            reasons: tuple[str, ...] = (f"{spare.path}: its repository is gone",) if there else ()
        else:
            reasons = (await core.git.spares.remove(info, spare.path, spare.commit, unfinished=unfinished)).left
        self.cold.pop(spare.id, None)
        core.failpoint.hit("spare.removed")
        await self.handwork.stays(reasons, spare.path, repo.id)
        await core.store.write(lambda unit: unit.spares.remove(spare.id))
        return not reasons

    async def warm(self, spare: Spare, repo: Repo) -> None:
        """Start a warm agent in a spare, unless it is in use. `cold` gets the reason of a failure.

        A tracker follows its changes from then on, so that the first prompt waits for no scan of
        all files.
        """
        await self._quiet.wait()
        if spare.id in self.in_use or self._warmer.has(spare.id):
            return
        # Mark it as in use until the start begins, so that it is still a spare then. From then on a
        # claim takes over the start and the tracker too.
        with self._use(spare):
            if await self._core.store.read(lambda reader: reader.spares.get(spare.id)) is None:
                return
            try:
                if not await self._watch(spare, repo):
                    return
            except RametError as error:  # the claim then checks the files
                log.warning("spare", id=spare.id, error=error.message)
            starting = self._warmer.begin(spare, repo)
        await asyncio.wait([starting])
        self.cold.pop(spare.id, None)
        if not starting.cancelled() and (reason := starting.result()):
            log.warning("no warm agent", spare=spare.id, error=reason)
            self.cold[spare.id] = reason

    async def cool(self, spare: Spare) -> None:
        """End the warm agent of a spare, unless it is in use."""
        if spare.id not in self.in_use:
            self._warmer.discard(spare.id)
            await self._unwatch(spare)

    async def _watch(self, spare: Spare, repo: Repo) -> bool:
        """Follow the changes of a spare. If a person has worked in it, give it up and return
        False."""
        git = self._core.git
        tracker = await git.trackers.watch(spare.path)
        mark = await tracker.mark()
        if await git.spares.work(await info_of(self._core, repo), spare.path, spare.commit) is not None:
            await self._destroy(spare, repo)
            return False
        if tracker.live:
            self._marks[spare.id] = mark
        return True

    async def _unwatch(self, spare: Spare) -> None:
        self._marks.pop(spare.id, None)
        await self._core.git.trackers.unwatch(spare.path)

    @contextmanager
    def _use(self, spare: Spare) -> Iterator[None]:
        self.in_use.add(spare.id)
        try:
            yield
        finally:
            self.in_use.discard(spare.id)
