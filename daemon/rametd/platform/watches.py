"""One inotify instance for all trackers: Linux allows a user 128 of them by default, and editors
take some. Without one, a tracker scans."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Final

from rametd.platform.inotify import IN_IGNORED, IN_Q_OVERFLOW, Event, Inotify

PAUSE_S: Final = 0.02
"""Seconds between two reads of the kernel's queue: a burst of changes must wake the loop only a few
times."""
MOST: Final = 16_384
"""Maximum number of events that wait for one tracker. Further ones count as lost, as in the
kernel's own queue."""
_LOST: Final = Event(-1, IN_Q_OVERFLOW, "")


class Watches:
    """The instance, open while there are queues. Events reach every `Queue` that has the watch."""

    def __init__(self) -> None:
        # A thread holds this lock while it adds a watch: else the loop could read an event before
        # the watch has an owner, and drop it.
        self._lock = threading.Lock()
        self._inotify: Inotify | None = None
        self._queues: list[Queue] = []
        self._owners: dict[int, list[Queue]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pause: asyncio.TimerHandle | None = None

    def open(self, news: Callable[[], None]) -> "Queue":
        """Add a queue; ``news`` is called on the running loop when it has events. Raises
        `OutOfWatchesError`."""
        if self._inotify is None:
            self._inotify, self._loop = Inotify(), asyncio.get_running_loop()
            self._listen()
        made = Queue(self, news)
        self._queues.append(made)
        return made

    def read(self) -> None:
        """Distribute all events that the kernel has queued until now. Called on the loop."""
        with self._lock:
            touched = set[Queue]()
            for event in self._inotify.read() if self._inotify is not None else ():
                owners = self._queues if event.mask & IN_Q_OVERFLOW else self._owners.get(event.wd, ())
                for queue in owners:
                    queue.put(event)
                touched.update(owners)
                if event.mask & IN_IGNORED:  # the kernel has removed the watch
                    self._owners.pop(event.wd, None)
        for queue in touched:
            queue.news()

    def watch(self, queue: "Queue", directory: str) -> int:
        """See `Inotify.watch`."""
        with self._lock:
            assert self._inotify is not None, "it is open while there are queues"
            wd = self._inotify.watch(directory)
            owners = self._owners.setdefault(wd, [])
            if queue not in owners:
                owners.append(queue)
            return wd

    def unwatch(self, queue: "Queue", wd: int) -> None:
        """Remove a watch, unless another queue has it too."""
        with self._lock:
            self._disown(queue, wd)

    def close(self, queue: "Queue") -> None:
        """Remove a queue with its watches."""
        with self._lock:
            self._queues.remove(queue)
            if not self._queues and self._inotify is not None and self._loop is not None:
                if self._pause is not None:
                    self._pause.cancel()
                self._loop.remove_reader(self._inotify.descriptor)
                self._inotify.close()
                self._inotify = None
                self._owners.clear()
                return
            for wd in [wd for wd, owners in self._owners.items() if queue in owners]:
                self._disown(queue, wd)

    def _disown(self, queue: "Queue", wd: int) -> None:
        owners = self._owners.get(wd, [])
        if queue not in owners:
            return
        owners.remove(queue)
        if not owners:
            del self._owners[wd]
            if self._inotify is not None:
                self._inotify.unwatch(wd)

    def _listen(self) -> None:
        if self._inotify is not None and self._loop is not None:
            self._loop.add_reader(self._inotify.descriptor, self._readable)

    def _readable(self) -> None:
        if self._inotify is not None and self._loop is not None:
            self._loop.remove_reader(self._inotify.descriptor)
            self._pause = self._loop.call_later(PAUSE_S, self._listen)
            self.read()


class Queue:
    """The watches of one tracker, and their events."""

    def __init__(self, watches: Watches, news: Callable[[], None]) -> None:
        self.news = news
        self._watches = watches
        self._events: list[Event] = []

    def put(self, event: Event) -> None:
        if len(self._events) >= MOST:
            self._events = [_LOST]
        self._events.append(event)

    def watch(self, directory: str) -> int:
        return self._watches.watch(self, directory)

    def unwatch(self, wd: int) -> None:
        self._watches.unwatch(self, wd)

    def read(self) -> Iterator[Event]:
        """Return the events until now, each once."""
        self._watches.read()
        events, self._events = self._events, []
        return iter(events)

    def close(self) -> None:
        self._watches.close(self)
