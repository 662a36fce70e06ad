"""Deliver committed events to watchers, in order and without gaps."""

import asyncio
from collections import deque
from collections.abc import Collection, Sequence

from rametd.domain.models import Event
from rametd.store import Store

BACKLOG = 4096
"""Maximum number of events queued for a slow watcher; beyond it the watcher reads from the
store."""
PAGE = 1000
"""Maximum number of events in one read from the store."""
ROOM = 2 << 20
"""Maximum bytes of a queue, and of one read: a line of an agent may have megabytes, and there may
be many watchers."""


class Watcher:
    """One reader of the log. `next` returns events after ``seq``. A slow reader misses no event,
    and uses bounded memory."""

    def __init__(
        self, hub: "Hub", after_seq: int, session_ids: Collection[str] | None, kinds: Collection[str] | None
    ) -> None:
        self.seq = after_seq
        self._hub = hub
        self._session_ids = frozenset(session_ids) if session_ids is not None else None
        self._kinds = frozenset(kinds) if kinds is not None else None
        self._queue: deque[Event] = deque()
        self._queued = 0  # bytes
        self._behind = True  # read the store after `seq` first
        self._news = asyncio.Event()
        self._offered = 0

    def offer(self, events: Sequence[Event]) -> None:
        self._offered = events[-1].seq
        if self._behind:
            self._news.set()
            return
        wanted = [event for event in events if self._wanted(event)]
        size = sum(event.size for event in wanted)
        if len(self._queue) + len(wanted) > BACKLOG or self._queued + size > ROOM:
            self._clear()
            self._behind = True
        else:
            self._queue.extend(wanted)
            self._queued += size
        self._news.set()

    def _wanted(self, event: Event) -> bool:
        of_these = self._session_ids is None or event.session_id in self._session_ids
        return of_these and (self._kinds is None or event.kind in self._kinds)

    def _clear(self) -> None:
        self._queue.clear()
        self._queued = 0

    async def next(self, within: float | None = None) -> list[Event]:
        """Return at least one event, or none after ``within`` seconds. ``seq`` is then the number
        of the newest event."""
        deadline = None if within is None else asyncio.get_running_loop().time() + within
        while True:
            if self._behind:
                # The race: an event may be committed during the read below. So offers are queued
                # from here on; by their numbers, those that the read returns too are dropped.
                self._behind = False
                self._clear()
                if events := await self._stored():
                    return events
            if self._queue:
                events = [event for event in self._queue if event.seq > self.seq]
                self._clear()
                if events:
                    self.seq = events[-1].seq
                    return events
            self._news.clear()
            if self._queue or self._behind:
                continue
            self.seq = max(self.seq, self._offered)  # no event up to there matches this watcher
            try:
                async with asyncio.timeout_at(deadline):
                    await self._news.wait()
            except TimeoutError:
                return []

    async def _stored(self) -> list[Event]:
        after = self.seq
        one = next(iter(self._session_ids)) if self._session_ids is not None and len(self._session_ids) == 1 else None
        events, more = await self._hub.store.read(
            lambda reader: reader.events.page(ROOM, after_seq=after, session_id=one, kinds=self._kinds, limit=PAGE)
        )
        if more or len(events) == PAGE:
            self._behind = True
        if events:
            self.seq = events[-1].seq
        return [event for event in events if self._wanted(event)]

    def close(self) -> None:
        self._hub.drop(self)


class Hub:
    """All watchers of one store."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._watchers: set[Watcher] = set()
        self._unsubscribe = store.subscribe(self._publish)

    def _publish(self, events: Sequence[Event]) -> None:
        for watcher in self._watchers:
            watcher.offer(events)

    def watch(
        self, after_seq: int, session_ids: Collection[str] | None = None, kinds: Collection[str] | None = None
    ) -> Watcher:
        """Create a watcher of events after ``after_seq``, of the given sessions and kinds or of
        all. Close it when done."""
        watcher = Watcher(self, after_seq, session_ids, kinds)
        self._watchers.add(watcher)
        return watcher

    def drop(self, watcher: Watcher) -> None:
        self._watchers.discard(watcher)

    def close(self) -> None:
        self._unsubscribe()
