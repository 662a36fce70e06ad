"""The change trackers of live sessions: begun when a session is at work or watched, ended when it has rested for long or before its tree goes."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from collections.abc import Set as AbstractSet
from contextlib import ExitStack, asynccontextmanager

import structlog

from rametd.domain.errors import RametError
from rametd.domain.models import Session
from rametd.domain.states import BUSY_STATES
from rametd.git import Git, Tracker
from rametd.services import events
from rametd.store import Store

log = structlog.get_logger()

REST_S = 900.0
"""How long a session rests before its tracker does."""
PERIOD_S = 60.0


class Trackers:
    """Owns what `Git.trackers.watch` makes. A session without one is looked at by scans: slower, never wrong."""

    def __init__(self, store: Store, git: Git, recovered: asyncio.Event) -> None:
        self._store = store
        self._git = git
        self._recovered = recovered
        self._deferred: dict[str, Session] = {}  # to be followed once the daemon serves
        self._starting: dict[str, asyncio.Task[Tracker]] = {}
        self._sessions: dict[str, Session] = {}
        self._held: Counter[str] = Counter()
        self._resting: dict[str, float] = {}  # since when, by the loop's clock
        self.on_begun: list[Callable[[Session, Tracker], None]] = []  # who wants to read its changes

    def follow(self, session: Session) -> None:
        """Begin its tracker in a task. While the daemon recovers, defer it: it starts git and looks at all files."""
        if not self._recovered.is_set():
            self._deferred[session.id] = session
        elif session.id not in self._sessions:
            self._start(session).add_done_callback(_retrieve)

    async def get(self, session: Session) -> Tracker:
        """Its tracker, begun unless it is there. Raises what `Git.trackers.watch` raises."""
        found = self._git.trackers.get(session.worktree)
        return found if found is not None else await asyncio.shield(self._start(session))

    @asynccontextmanager
    async def held(self, session: Session) -> AsyncIterator[Tracker]:
        """Its tracker, kept while somebody watches."""
        self._held[session.id] += 1
        try:
            yield await self.get(session)
        finally:
            self._held[session.id] -= 1

    def session_made(self, session: Session) -> None:
        """A session hook: the tracker of what was a spare is the session's from now on."""
        if self._git.trackers.get(session.worktree) is not None:
            self.follow(session)

    async def before_prompt(self, session: Session) -> None:
        """A session hook."""
        self.follow(session)

    async def before_tree_goes(self, session: Session) -> None:
        """A session hook."""
        self._deferred.pop(session.id, None)
        await self._stop(session)

    async def recover(self, but: AbstractSet[str] = frozenset()) -> None:
        """Follow what was at work when the last daemon ended, ``but`` those whose tree is about to go."""
        for session in await self._store.read(lambda reader: reader.sessions.list(states=BUSY_STATES)):
            if session.id not in but:
                self.follow(session)

    async def run(self) -> None:
        """Begin the trackers that were deferred, one after another; then let go of trackers of sessions that rest."""
        while self._deferred:
            _, session = self._deferred.popitem()
            if session.id not in self._sessions:
                task = self._start(session)
                task.add_done_callback(_retrieve)
                await asyncio.wait([task])
        while True:
            await asyncio.sleep(PERIOD_S)
            await self.sweep(asyncio.get_running_loop().time())

    async def sweep(self, now: float) -> None:
        for session in list(self._sessions.values()):
            current = await self._find(session.id)
            if current is not None and (current.state in BUSY_STATES or self._held[session.id]):
                self._resting.pop(session.id, None)
            elif now - self._resting.setdefault(session.id, now) >= REST_S or current is None:
                await self._stop(session)

    async def _find(self, session_id: str) -> Session | None:
        return await self._store.read(lambda reader: reader.sessions.find(session_id))

    async def close(self) -> None:
        for session in list(self._sessions.values()):
            await self._stop(session)

    def _start(self, session: Session) -> "asyncio.Task[Tracker]":
        task = self._starting.get(session.id)
        if task is None:
            self._sessions[session.id] = session
            task = self._starting[session.id] = asyncio.create_task(self._begin(session), name=f"track-{session.id}")
            task.add_done_callback(lambda _: self._starting.pop(session.id, None))
        return task

    async def _begin(self, session: Session) -> Tracker:
        with ExitStack() as undo:
            undo.callback(self._sessions.pop, session.id, None)
            try:
                tracker = await self._git.trackers.watch(session.worktree)
            except RametError as error:
                log.warning("changes cannot be followed", session=session.id, error=error.message)
                raise
            undo.pop_all()
        if not tracker.live:
            await self._store.write(
                lambda unit: events.warn(unit, session, f"changes are looked for by scans: {tracker.note}")
            )
        for begun in self.on_begun:
            begun(session, tracker)
        return tracker

    async def _stop(self, session: Session) -> None:
        starting = self._starting.get(session.id)
        if starting is not None:
            starting.cancel()
            await asyncio.wait([starting])
        self._sessions.pop(session.id, None)
        self._resting.pop(session.id, None)
        await self._git.trackers.unwatch(session.worktree)


def _retrieve(task: "asyncio.Task[Tracker]") -> None:
    """What went wrong was logged, and whoever asks for the tracker is told."""
    if not task.cancelled():
        task.exception()
