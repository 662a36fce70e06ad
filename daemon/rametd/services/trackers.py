"""Change trackers of sessions. One starts when its session works or is watched, and ends after a
long idle time or before the worktree is removed."""

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
"""Idle time of a session after which its tracker ends."""
PERIOD_S = 60.0


class Trackers:
    """Owns the trackers of `Git.trackers.watch`. Slower scans find the changes of a session without
    one."""

    def __init__(self, store: Store, git: Git, recovered: asyncio.Event) -> None:
        self._store = store
        self._git = git
        self._recovered = recovered
        self._deferred: dict[str, Session] = {}  # to follow once the daemon serves
        self._starting: dict[str, asyncio.Task[Tracker]] = {}
        self._sessions: dict[str, Session] = {}
        self._held: Counter[str] = Counter()
        self._resting: dict[str, float] = {}  # session → since when, on the event loop's clock
        self.on_begun: list[Callable[[Session, Tracker], None]] = []  # called with each started tracker

    def follow(self, session: Session) -> None:
        """Start a session's tracker in a task. Defer it while the daemon recovers: it starts git
        and scans all files."""
        if not self._recovered.is_set():
            self._deferred[session.id] = session
        elif session.id not in self._sessions:
            self._start(session).add_done_callback(_retrieve)

    async def get(self, session: Session) -> Tracker:
        """Return a session's tracker; start it if necessary. Raises what `Git.trackers.watch`
        raises."""
        found = self._git.trackers.get(session.worktree)
        return found if found is not None else await asyncio.shield(self._start(session))

    @asynccontextmanager
    async def held(self, session: Session) -> AsyncIterator[Tracker]:
        """Hold a session's tracker while it is watched."""
        self._held[session.id] += 1
        try:
            yield await self.get(session)
        finally:
            self._held[session.id] -= 1

    def session_made(self, session: Session) -> None:
        """A session hook: the session takes over the tracker of its spare."""
        if self._git.trackers.get(session.worktree) is not None:
            self.follow(session)

    async def before_prompt(self, session: Session) -> None:
        """A session hook."""
        self.follow(session)

    async def before_tree_removal(self, session: Session) -> None:
        """A session hook."""
        self._deferred.pop(session.id, None)
        await self._stop(session)

    async def recover(self, but: AbstractSet[str] = frozenset()) -> None:
        """Follow sessions that are at work, except the sessions ``but``, which an operation has."""
        for session in await self._store.read(lambda reader: reader.sessions.list(states=BUSY_STATES)):
            if session.id not in but:
                self.follow(session)

    async def run(self) -> None:
        """Start the deferred trackers one after another; then keep ending those of resting
        sessions."""
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
                log.warning("changes cannot be tracked", session=session.id, error=error.message)
                raise
            undo.pop_all()
        if not tracker.live:
            await self._store.write(
                lambda unit: events.warn(unit, session, f"changes are found by scans: {tracker.note}")
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
    """Retrieve the error, which is logged, and which callers of `get` receive."""
    if not task.cancelled():
        task.exception()
