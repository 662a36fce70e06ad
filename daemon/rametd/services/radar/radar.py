"""The radar: predicts conflicts between sessions from all files in the worktrees, committed or not.

The radar notes sessions whose work may have changed, and a moment later compares their pairs again.
Results are rows, so that a restarted daemon sends no warning twice. A warning reaches an agent with
its next tool result or prompt; only the setting "always" starts a turn for it.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations

import structlog

from rametd.domain.conflicts import FileConflict, PairConflict
from rametd.domain.errors import RametError
from rametd.domain.models import DAEMON, Repo, Session
from rametd.domain.states import State
from rametd.git import Matrix, Pair, RepositoryInfo, Tracker, Work
from rametd.services.core import Core
from rametd.services.delivery import post
from rametd.services.radar import conflicts
from rametd.services.repos import info_of
from rametd.services.tasks import Tasks
from rametd.services.trackers import Trackers
from rametd.services.trust.settings import for_repository
from rametd.store import Reader, Unit

EXACT = 22
"""Maximum number of conflicting sessions for which to compute the best order; for more a good
one."""


def landing_order(
    sessions: Sequence[str], red: Collection[frozenset[str]], before: Mapping[str, Collection[str]] | None = None
) -> tuple[list[str], int]:
    """Return the sessions in the best order of landing, and how many of them conflict with an
    earlier one.

    ``red`` has the conflicting pairs, ``before`` the sessions that must land before each. A largest
    set of sessions without conflicts lands first. In any order, every other session conflicts with
    one of these, so no order has fewer conflicts.
    """
    neighbours = {each: {other for pair in red if each in pair for other in pair if other != each} for each in sessions}
    first = _independent({each: others & neighbours.keys() for each, others in neighbours.items()})
    earlier = before or {}
    left = list(sessions)
    order: list[str] = []
    while left:
        ready = [each for each in left if not any(other in left for other in earlier.get(each, ()))]
        # Circles are refused when sessions are created; if there is one, keep the given order.
        chosen = min(ready or left, key=lambda each: (each not in first, len(neighbours[each]), left.index(each)))
        left.remove(chosen)
        order.append(chosen)
    conflicts = sum(1 for place, each in enumerate(order) if neighbours[each] & set(order[:place]))
    return order, conflicts


def _independent(neighbours: Mapping[str, set[str]]) -> set[str]:
    """A largest set without neighbours; beyond `EXACT` a large one."""
    free = {each for each, others in neighbours.items() if not others}
    rest = [each for each in neighbours if each not in free]
    if len(rest) <= EXACT:
        return free | _largest(rest, neighbours)
    chosen: set[str] = set()
    for each in sorted(rest, key=lambda each: len(neighbours[each])):
        if not neighbours[each] & chosen:
            chosen.add(each)
    return free | chosen


def _largest(rest: Sequence[str], neighbours: Mapping[str, set[str]]) -> set[str]:
    """Search by branching on the session with the most neighbours: with it, or without it."""

    def search(candidates: frozenset[str]) -> frozenset[str]:
        if not candidates:
            return frozenset()
        busiest = max(sorted(candidates), key=lambda each: len(neighbours[each] & candidates))
        if not neighbours[busiest] & candidates:
            return candidates
        without = search(candidates - {busiest})
        with_it = search(candidates - {busiest} - neighbours[busiest]) | {busiest}
        return with_it if len(with_it) > len(without) else without

    return set(search(frozenset(rest)))


log = structlog.get_logger()

DEBOUNCE_S = 0.3
"""Seconds from the first change to the comparison: a commit or a refactoring changes many files in
a row."""
REST_S = 60.0
"""Minimum number of seconds between two warnings of an idle agent: each costs a turn."""
BASE = "base:"
"""Prefix of a base's key among the ids of sessions."""
OF_INTEREST = frozenset(
    {
        "session_created", "session_removed", "session_archived", "session_restored", "session_rewound", "session_synced",
        "turn_started", "turn_ended", "checkpoint_made", "target_moved",
    }
)  # fmt: skip
"""Events after which results may change although no file has changed, or after which an agent can
be warned."""


@dataclass(slots=True)
class _Field:
    """State of one repository."""

    matrix: Matrix
    works: dict[str, Work] = field(default_factory=dict)  # by session, and by base as `base_key` names it
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass(frozen=True, slots=True)
class Picture:
    """Conflicts between the sessions of a repository."""

    pairs: tuple[PairConflict, ...]  # those with conflicts, worst first
    sessions: tuple[Session, ...]  # that were compared
    order: tuple[str, ...]  # of landing
    order_conflicts: int


class Radar:
    """One for all repositories; `run` is its task."""

    def __init__(self, core: Core, trackers: Trackers) -> None:
        self._core = core
        self._trackers = trackers
        self._fields: dict[str, _Field] = {}  # by repository
        self._noted: set[str] = set()  # sessions
        self._news = asyncio.Event()
        self._readers = Tasks("radar")
        self._told: dict[str, float] = {}  # session → time of the last warning

    def follow(self, session: Session, tracker: Tracker) -> None:
        """Note the session at each change of its files, until the tracker is closed."""

        async def read() -> None:
            async for _ in tracker.changes():
                self.note(session.id)

        self._readers.start(session.id, read())

    def note(self, session_id: str) -> None:
        """Compare a session again soon: its files may have changed."""
        self._noted.add(session_id)
        self._news.set()

    async def run(self) -> None:
        """Compare noted sessions, until cancelled."""
        listening = asyncio.create_task(self._listen(), name="radar-events")
        try:
            while True:
                await self._news.wait()
                await asyncio.sleep(DEBOUNCE_S)
                self._news.clear()
                noted, self._noted = self._noted, set()
                await self._look_at(noted)
        finally:
            listening.cancel()
            self._readers.cancel()

    async def _listen(self) -> None:
        seq = await self._core.store.read(lambda reader: reader.events.last_seq())
        watcher = self._core.hub.watch(seq, kinds=OF_INTEREST)
        try:
            while True:
                for event in await watcher.next():
                    sessions = [event.session_id] if event.session_id else []
                    # A removed session leaves pairs behind: compare the other sessions.
                    if event.repo_id and (not sessions or event.kind == "session_removed"):
                        sessions = await self._sessions_of(event.repo_id)
                    for session_id in sessions:
                        self.note(session_id)
        finally:
            watcher.close()

    async def _sessions_of(self, repo_id: str) -> list[str]:
        return await self._core.store.read(lambda reader: [each.id for each in reader.sessions.list(repo_id=repo_id)])

    async def _look_at(self, noted: Collection[str]) -> None:
        def repositories(reader: Reader) -> dict[str, set[str]]:
            found: dict[str, set[str]] = defaultdict(set)
            for session_id in noted:
                session = reader.sessions.find(session_id)
                if session is not None:
                    found[session.repo_id].add(session_id)
            return found

        for repo_id, sessions in (await self._core.store.read(repositories)).items():
            try:
                await self.refresh(repo_id, sessions)
            except RametError as error:
                # The repository cannot be reached now: the next change or call tries again.
                log.warning("radar", repo=repo_id, error=error.message)

    # ── comparing ─────────────────────────────────────────────────────────────────────────────────

    async def refresh(self, repo_id: str, noted: Collection[str] | None = None) -> tuple[Session, ...]:
        """Compare the noted sessions again, or all; return the compared sessions."""
        core = self._core
        repo, sessions = await core.store.read(
            lambda reader: (
                reader.repos.get(repo_id),
                tuple(
                    each
                    for each in reader.sessions.list(repo_id=repo_id)
                    if each.state != State.ARCHIVED and each.worktree_ready
                ),
            )
        )
        info = await info_of(core, repo)
        area = self._fields.setdefault(repo_id, _Field(core.git.matrix(info)))
        async with area.lock:
            works = await self._works(area, info, sessions, noted)
            changed = {name for name in works.keys() | area.works.keys() if works.get(name) != area.works.get(name)}
            present = [each for each in sessions if each.id in works]
            pairs = [pair for pair in _pairs(present, works) if changed & set(pair)]
            found = await area.matrix.compare(works, pairs)
            area.works = works
            await self._store(repo, info, found)
            return tuple(present)

    async def _works(
        self, area: _Field, info: RepositoryInfo, sessions: tuple[Session, ...], noted: Collection[str] | None
    ) -> dict[str, Work]:
        """The work of each session and base, without unreadable ones."""
        git = self._core.git
        works: dict[str, Work] = {}
        for ref in {session.base_ref for session in sessions}:
            try:
                tip = (await git.branches.resolve_base(info, ref, None)).commit
                works[base_key(ref)] = Work(await git.commits.tree(info, tip), tip)
            except RametError:
                continue  # the base is gone
        for session in sessions:
            known = area.works.get(session.id)
            base = works.get(base_key(session.base_ref))
            tip = base.head if base is not None else ""
            if known is not None and noted is not None and session.id not in noted:
                works[session.id] = replace(known, base=tip)
                continue
            try:
                head = await git.worktrees.head_commit(session.worktree)
                if head is not None:
                    works[session.id] = Work(await git.diffs.tree(session.worktree), head, tip)
            except RametError as error:
                # Do not warn of a worktree that an operation removes.
                stays = await self._core.store.read(partial(_stays, session_id=session.id))
                (log.warning if stays else log.debug)("radar cannot read", session=session.id, error=error.message)
        return works

    async def _store(self, repo: Repo, info: RepositoryInfo, found: dict[Pair, tuple[FileConflict, ...]]) -> None:
        core = self._core
        tell = (await for_repository(core, repo, info)).radar.tell_agents
        self._told = {each: when for each, when in self._told.items() if core.loop_time() - when < REST_S}
        resting = frozenset(self._told)

        def work(unit: Unit) -> list[str]:
            for (one, other), files in found.items():
                session = unit.sessions.find(one)
                sibling = None if other.startswith(BASE) else unit.sessions.find(other)
                if session is not None and (sibling is not None or other.startswith(BASE)):  # else removed meanwhile
                    conflicts.record(unit, session, sibling, files)
            for pair in unit.conflicts.list(repo.id):
                if pair.other_id and unit.sessions.find(pair.other_id) is None:
                    conflicts.forget(unit, pair)
            waiting = conflicts.notify_agents(unit, repo.id, tell=tell != "never")
            rested = [unit.sessions.get(each) for each in sorted(waiting - resting)] if tell == "always" else []
            idle = [each for each in rested if each.state == State.IDLE]
            for session in idle:
                post(unit, core.policy.kinds[session.agent], session, unit.notices.take(session.id), DAEMON)
            return [each.id for each in idle]

        for session_id in await core.store.write_for_sure(work):
            self._told[session_id] = core.loop_time()
            # Conflicts that appear meanwhile are reported after the pause.
            asyncio.get_running_loop().call_later(REST_S, self.note, session_id)
            core.live.schedule()

    # ── asking ────────────────────────────────────────────────────────────────────────────────────

    async def picture(self, repo_id: str) -> Picture:
        """The present conflicts, and the best order of landing."""
        sessions = await self.refresh(repo_id)
        pairs = await self._core.store.read(lambda reader: reader.conflicts.list(repo_id))
        landable = [each for each in sessions if await self._has_work(repo_id, each)]
        # Those that conflict with their base come last: each needs work before it can land.
        stuck = {pair.session_id for pair in pairs if pair.red and not pair.other_id}
        ids = [each.id for each in landable if each.id not in stuck]
        red = {frozenset((each.session_id, each.other_id)) for each in pairs if each.red and each.other_id in ids}
        order, met = landing_order(ids, red, {each.id: each.after for each in landable})
        order += [each.id for each in landable if each.id in stuck]
        met += len(order) - len(ids)
        return Picture(tuple(conflicts.by_severity(pairs)), sessions, tuple(order), met)

    async def _has_work(self, repo_id: str, session: Session) -> bool:
        """Whether a session has something to land."""
        area = self._fields[repo_id]
        work = area.works[session.id]
        if work.head != session.base_commit and not session.landed_reason:
            return True
        # Any commits are on the target already: check for uncommitted work.
        repo = await self._core.store.read(lambda reader: reader.repos.get(repo_id))
        info = await info_of(self._core, repo)
        return work.tree != await self._core.git.commits.tree(info, work.head)

    @asynccontextmanager
    async def watched(self, repo_id: str) -> AsyncIterator[Callable[[], Awaitable[Picture]]]:
        """Yield a function that returns the present picture. Until the end of the block, track
        changes of all sessions in it."""
        async with AsyncExitStack() as stack:
            followed: set[str] = set()

            async def look() -> Picture:
                for session in await self._core.store.read(lambda reader: reader.sessions.list(repo_id=repo_id)):
                    if session.id not in followed and session.state != State.ARCHIVED:
                        followed.add(session.id)
                        try:
                            await stack.enter_async_context(self._trackers.held(session))
                        except RametError as error:
                            log.warning("radar cannot track", session=session.id, error=error.message)
                return await self.picture(repo_id)

            yield look


def base_key(ref: str) -> str:
    """Key of a base, which is no id of a session."""
    return BASE + ref


def _pairs(sessions: Collection[Session], works: dict[str, Work]) -> Iterator[Pair]:
    for one, other in combinations(sorted(sessions, key=lambda each: each.id), 2):
        if not one.contest or one.contest != other.contest:  # of a contest, one is picked: they need not merge
            yield one.id, other.id
    for session in sessions:
        if base_key(session.base_ref) in works:
            yield session.id, base_key(session.base_ref)


def _stays(reader: Reader, session_id: str) -> bool:
    """Whether no operation has the session."""
    session = reader.sessions.find(session_id)
    going = reader.operations.exclusive(session_id) is not None
    return session is not None and session.state != State.ARCHIVED and not going
