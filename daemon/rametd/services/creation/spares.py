"""One spare: made, brought to another commit, given a warm agent, removed.

A row is stored before a directory is made, and removed after it has gone; its state is the intent. A daemon that finds one in which something
was under way removes both.

Between a claim and the upkeep stands `Spares.hands`: the ids of spares that somebody works with. Both look and take without an `await` in between,
so that a spare is never brought to another commit while a session is being put into it.

A spare in which somebody has worked is theirs: the pool lets go of it, and that is told. What is about to write to one, or to remove it, looks at all of
it. A claim has no time for that: it looks at HEAD, and at the files where a tracker tells that some were written to; else they are looked at once the
session is there, which is told of those that were changed before it.
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
from rametd.git import RepositoryInfo
from rametd.services import events
from rametd.services.agents.warm import Warmer
from rametd.services.core import Core
from rametd.services.ids import new_id
from rametd.services.repos import info_of
from rametd.services.settings import for_repository
from rametd.services.words import listed
from rametd.services.worktrees.places import tree_of

NAMED = 5
"""Files that a warning names."""
SETTLE_S = 2.0
"""From a session's creation to the look: its first prompt is on the way, and must not share the machine with that."""


class Handwork:
    """Tells of it in warnings, those of the repository or of the session."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._looks: set[asyncio.Task[None]] = set()

    async def stays(self, kept: Sequence[str], path: Path, repo_id: str) -> None:
        """A spare was left in place; ``kept`` has a line for each reason."""
        for words in kept:
            adopt = shlex.join(("rametctl", "adopt", str(path)))
            await self._tell(f"{words}; it stays, and is no spare any more: {adopt} has a session there", repo_id)

    def look_after(self, session: Session, info: RepositoryInfo) -> None:
        """Look, in the background, for what a session was given with a spare whose files nobody had looked at."""
        task = asyncio.create_task(self._look(session, info), name=f"look-{session.id}")
        self._looks.add(task)
        task.add_done_callback(self._looks.discard)

    async def close(self) -> None:
        for task in self._looks:
            task.cancel()
        if self._looks:
            await asyncio.wait(self._looks)

    async def _look(self, session: Session, info: RepositoryInfo) -> None:
        await asyncio.sleep(SETTLE_S)
        where = (session.worktree, session.branch, session.base_commit)
        try:
            left = await self._core.git.spares.left(info, *where, session.create_time)
        except RametError as error:  # its tree may be gone already
            log.warning("spare", id=session.id, error=error.message)
            return
        if left:
            words = "somebody had worked in this worktree before the session was given it"
            await self._tell(f"{words}: look at {listed(list(left), NAMED)}", session.repo_id, session.id)

    async def _tell(self, words: str, repo_id: str, session_id: str = "") -> None:
        log.warning("somebody's work in a spare", words=words)
        event = events.make(event_pb2.Warning(message=words), session_id=session_id, repo_id=repo_id)
        await self._core.store.write(lambda unit: unit.events.append(event))


log = structlog.get_logger()


class Prepared(Protocol):
    """How the setup of a tree went; ``digest`` is of what it depends on, ``words`` say what went wrong."""

    @property
    def state(self) -> SetupState: ...
    @property
    def digest(self) -> str: ...
    @property
    def words(self) -> str: ...


Prepare = Callable[[Path, Repo, Config], Awaitable[Prepared]]
"""Carries files into a tree and sets it up (`Setup.run_in`)."""


class Spares:
    """What is done to a spare: one piece of work at a time, never begun while a session is being made."""

    def __init__(self, core: Core, warmer: Warmer, prepare: Prepare) -> None:
        self.hands: set[str] = set()  # spares that somebody works with
        self.cold: dict[str, str] = {}  # why there is no agent in a spare that is to have one
        self.handwork = Handwork(core)
        self._core = core
        self._warmer = warmer
        self._prepare = prepare
        self._marks: dict[str, int] = {}  # of those whose changes are followed: when nobody had worked in them yet
        self._creations = 0
        self._quiet = asyncio.Event()  # no session is being made
        self._quiet.set()
        self._one = asyncio.Semaphore(1)

    @contextmanager
    def creating(self) -> Iterator[None]:
        """While a session is being made no upkeep begins."""
        self._creations += 1
        self._quiet.clear()
        try:
            yield
        finally:
            self._creations -= 1
            if not self._creations:
                self._quiet.set()

    async def is_whole(self, spare: Spare, info: RepositoryInfo) -> bool:
        """Whether it is as it was made: it stands at its commit, and its files are there; nobody has written to them, where that can be told at once."""
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
        """A session has what was a spare."""
        if self._marks.pop(session.id, None) is None:
            self.handwork.look_after(session, info)

    async def make(self, repo: Repo, info: RepositoryInfo, commit: str, inherits: str) -> None:
        """Make one more. Raises what git raises; nothing is left of it then."""
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
            create_time=core.clock(),
        )
        async with self._one:
            with self._in_hand(spare):
                await core.store.write(lambda unit: unit.spares.add(spare))
                core.failpoint.hit("spare.intended")
                await self._work(spare, repo, self._filled(spare, repo, info))

    async def _filled(self, spare: Spare, repo: Repo, info: RepositoryInfo) -> Spare:
        for warning in await self._core.git.spares.make(info, spare.path, spare.commit):
            log.warning("spare", id=spare.id, warning=warning)
        self._core.failpoint.hit("spare.made")
        return await self._prepared(spare, repo, info)

    async def update(self, spare: Spare, repo: Repo, info: RepositoryInfo, commit: str) -> bool:
        """Bring it to ``commit``, unless somebody has it in hand. What cannot be brought there is removed. Whether it is a spare still."""
        core = self._core
        await self._quiet.wait()
        async with self._one:
            if spare.id in self.hands:
                return False
            with self._in_hand(spare):
                # A claim that is over took the row away before it let go.
                if not await self._mark(spare, SpareState.UPDATING):
                    return False
                core.failpoint.hit("spare.update-intended")
                try:
                    await self._work(spare, repo, self._brought_to(spare, repo, info, commit))
                except WorktreeChangedError:
                    return False
        return True

    async def _brought_to(self, spare: Spare, repo: Repo, info: RepositoryInfo, commit: str) -> Spare:
        await self._warmer.end(spare.id)  # it has seen the commit that it was started at
        await self._unwatch(spare)
        await self._core.git.spares.update(info, spare.path, spare.commit, commit, background=True)
        self._core.failpoint.hit("spare.updated")
        return await self._prepared(replace(spare, commit=commit), repo, info)

    async def _prepared(self, spare: Spare, repo: Repo, info: RepositoryInfo) -> Spare:
        config = await for_repository(self._core, repo, info)
        prepared = await self._prepare(spare.path, repo, config)
        if prepared.words:
            log.warning("spare", id=spare.id, warning=prepared.words)
        spare = replace(spare, setup=prepared.state, setup_digest=prepared.digest)
        await self._core.git.spares.note(info, spare.path, spare.commit)
        return spare

    async def _work(self, spare: Spare, repo: Repo, work: Awaitable[Spare]) -> None:
        """Await ``work`` and store what became of the spare; where it fails or is cut short nothing is left of it."""
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
            )
        )
        self._core.failpoint.hit("spare.ready")

    async def remove_unfinished(self, spare: Spare) -> None:
        """Remove what a killed daemon was at work on."""
        repo = await self._core.store.read(lambda reader: reader.repos.get(spare.repo_id))
        with self._in_hand(spare):
            await self._destroy(spare, repo, unfinished=spare.state in {SpareState.MAKING, SpareState.UPDATING})

    async def remove(self, spare: Spare, repo: Repo) -> bool:
        """Unless somebody has it in hand, or it was claimed, or has worked in it: then it is no spare any more, and stays."""
        if spare.id in self.hands:
            return False
        with self._in_hand(spare):
            return await self._destroy(spare, repo)

    async def _mark(self, spare: Spare, state: SpareState) -> bool:
        return await self._core.store.write(lambda unit: unit.spares.update(spare.id, state=state))

    async def _destroy(self, spare: Spare, repo: Repo, *, unfinished: bool = False) -> bool:
        """Whether it is gone, rather than left to whoever has worked in it."""
        core = self._core
        if not await self._mark(spare, SpareState.REMOVING):
            return False
        core.failpoint.hit("spare.removal-intended")
        await self._warmer.end(spare.id)
        self._marks.pop(spare.id, None)
        try:
            info = await info_of(core, repo)
        except NotFoundError:
            # Without its repository nobody can tell whether it holds somebody's work.
            there = await asyncio.to_thread(spare.path.exists)
            kept: tuple[str, ...] = (f"{spare.path}: its repository is gone",) if there else ()
        else:
            kept = (await core.git.spares.remove(info, spare.path, spare.commit, unfinished=unfinished)).kept
        self.cold.pop(spare.id, None)
        core.failpoint.hit("spare.removed")
        await self.handwork.stays(kept, spare.path, repo.id)
        await core.store.write(lambda unit: unit.spares.remove(spare.id))
        return not kept

    async def warm(self, spare: Spare, repo: Repo) -> None:
        """Have a warm agent in it, unless somebody has it in hand; `cold` says why there is none. Its changes are followed from then on, so that
        the first prompt does not wait for a look at all its files either."""
        await self._quiet.wait()
        if spare.id in self.hands or self._warmer.has(spare.id):
            return
        # In hand, so that it is a spare still when the start begins: from then on a claim takes the start over too, and the tracker.
        with self._in_hand(spare):
            if await self._core.store.read(lambda reader: reader.spares.get(spare.id)) is None:
                return
            try:
                if not await self._watch(spare, repo):
                    return
            except RametError as error:  # whoever claims it looks at the files
                log.warning("spare", id=spare.id, error=error.message)
            starting = self._warmer.begin(spare, repo)
        await asyncio.wait([starting])
        self.cold.pop(spare.id, None)
        if not starting.cancelled() and (reason := starting.result()):
            log.warning("no warm agent", spare=spare.id, error=reason)
            self.cold[spare.id] = reason

    async def cool(self, spare: Spare) -> None:
        """Have no warm agent in it, unless somebody has it in hand."""
        if spare.id not in self.hands:
            self._warmer.discard(spare.id)
            await self._unwatch(spare)

    async def _watch(self, spare: Spare, repo: Repo) -> bool:
        """Follow its changes. False where somebody has worked in it before: then it is no spare any more."""
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
    def _in_hand(self, spare: Spare) -> Iterator[None]:
        self.hands.add(spare.id)
        try:
            yield
        finally:
            self.hands.discard(spare.id)
