"""Background tasks of a service."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import Any

import structlog

log = structlog.get_logger()


class Tasks:
    """Running tasks by key, such as a session's id. A failure is logged under ``name``; then
    ``failed`` is called with the key.
    """

    def __init__(self, name: str, failed: Callable[[str], object] = lambda key: None) -> None:
        self._name = name
        self._failed = failed
        self._newest: dict[str, asyncio.Task[None]] = {}
        self._running: set[asyncio.Task[None]] = set()

    def __contains__(self, key: str) -> bool:
        return key in self._newest

    def __iter__(self) -> Iterator[tuple[str, "asyncio.Task[None]"]]:
        return iter([*self._newest.items()])

    def __len__(self) -> int:
        return len(self._newest)

    @property
    def running(self) -> "tuple[asyncio.Task[None], ...]":
        """All running tasks, also the earlier ones of a key."""
        return tuple(self._running)

    def get(self, key: str) -> "asyncio.Task[None] | None":
        """Return the newest task of a key while it runs."""
        return self._newest.get(key)

    def start(self, key: str, work: Coroutine[Any, Any, None]) -> None:
        """Start a task, beside an earlier one of the same key."""
        task = self._newest[key] = asyncio.create_task(work, name=f"{self._name}-{key}")
        self._running.add(task)
        task.add_done_callback(partial(self._ended, key))

    def queue(self, key: str, work: Coroutine[Any, Any, None]) -> None:
        """Start a task that first waits until the key's earlier one has ended. Cancelling it while
        it waits cancels the earlier one too."""
        before = self._newest.get(key)

        async def in_turn() -> None:
            if before is not None:
                try:
                    await asyncio.wait([before])
                except asyncio.CancelledError:
                    before.cancel()
                    await asyncio.wait([before])
                    raise
            await work

        def ended(task: "asyncio.Task[None]") -> None:
            # A task that is cancelled before its first step never enters `in_turn`.
            work.close()
            if task.cancelled() and before is not None:
                before.cancel()

        self.start(key, in_turn())
        self._newest[key].add_done_callback(ended)

    async def wait(self, key: str) -> None:
        """Return once no task of a key runs, other than the caller's own."""
        while (task := self._newest.get(key)) is not None and task is not asyncio.current_task():
            await asyncio.wait([task])

    def cancel(self) -> None:
        for task in self._running:
            task.cancel()

    async def close(self, grace: float = 0.0) -> None:
        """Cancel all tasks that do not end within ``grace`` seconds; return once they have
        ended."""
        if self._running and grace:
            await asyncio.wait([*self._running], timeout=grace)
        self.cancel()
        if self._running:
            await asyncio.wait([*self._running])

    def _ended(self, key: str, task: "asyncio.Task[None]") -> None:
        self._running.discard(task)
        if self._newest.get(key) is task:
            del self._newest[key]
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("background work failed", work=self._name, of=key, exc_info=error)
            self._failed(key)
