"""Changed paths: as a stream for subscribers, or since a mark."""

import asyncio
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Changes:
    """Paths that may have changed. ``everything``: any path may have."""

    paths: frozenset[str]
    everything: bool = False


class Subscription:
    """An async iterator that ends when its tracker is closed, or by `close`."""

    def __init__(self, readers: "set[Subscription]") -> None:
        self._queue: asyncio.Queue[Changes | None] = asyncio.Queue()
        self._readers = readers
        readers.add(self)

    def put(self, changes: Changes | None) -> None:
        self._queue.put_nowait(changes)

    def __aiter__(self) -> "Subscription":
        return self

    async def __anext__(self) -> Changes:
        found = await self._queue.get()
        while found is not None and not self._queue.empty():  # a slow reader gets all changes at once
            more = self._queue.get_nowait()
            if more is None:
                self._queue.put_nowait(None)
                break
            found = Changes(found.paths | more.paths, found.everything or more.everything)
        if found is None:
            self._queue.put_nowait(None)  # it stays ended
            raise StopAsyncIteration
        return found

    def close(self) -> None:
        self._readers.discard(self)
        self._queue.put_nowait(None)


class ChangeLog:
    """Changed paths with the count of changes at that time; ``count`` is the present one."""

    def __init__(self) -> None:
        self.count = 0
        self._changed: dict[str, int] = {}  # by path, the count at which it last changed
        self._lost = 0
        self._readers: set[Subscription] = set()

    @property
    def is_read(self) -> bool:
        """Whether there is a subscriber."""
        return bool(self._readers)

    def publish(self, changes: Changes) -> None:
        if not changes.paths and not changes.everything:
            return
        self.count += 1
        if changes.everything:
            self._lost = self.count
            self._changed.clear()
        self._changed.update(dict.fromkeys(changes.paths, self.count))
        for reader in self._readers:
            reader.put(changes)

    def since(self, mark: int) -> frozenset[str] | None:
        """Return the paths that changed after ``mark``, an earlier count; None if unknown."""
        if self._lost > mark:
            return None
        return frozenset(path for path, count in self._changed.items() if count > mark)

    def subscribe(self) -> Subscription:
        return Subscription(self._readers)

    def end(self) -> None:
        """End all subscriptions."""
        for reader in self._readers:
            reader.put(None)
