"""What a killed daemon left in the middle of a session's files, from removals to rewinds: begun again at the start, and served beside where it takes long.

Git waits for a lock that somebody holds, a teardown takes its time, and a rewind looks at every file: nobody else is to wait for any of it. While one goes on, its session is in its
intent's hands, as in a daemon that lives: calls about it say so, the same call joins it, and no agent of it is taken up before it is over.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import structlog

from rametd.domain.errors import RametError
from rametd.domain.models import Intent

log = structlog.get_logger()

PATIENCE_S = 0.8
"""How long the start waits for all of them together; one takes a fifth of a second."""

Recovery = Callable[[Intent], Awaitable[object]]


class Unfinished:
    """``going``: the sessions with whose files something goes on by now that was begun before the start."""

    def __init__(self) -> None:
        self.going: set[str] = set()
        self._late: set[asyncio.Task[None]] = set()

    async def begin(
        self, found: Sequence[tuple[Recovery, Intent]], left_over: Callable[[str], Awaitable[None]]
    ) -> frozenset[str]:
        """Begin all; returns the sessions of those that go on after a moment. ``left_over`` is awaited with the id of each, once it is done or given up."""
        tasks = {
            asyncio.create_task(attempt(recovery, intent), name=f"finish-{intent.session_id}"): intent.session_id
            for recovery, intent in found
        }
        if not tasks:
            return frozenset()
        _, late = await asyncio.wait(tasks, timeout=PATIENCE_S)
        self.going = {tasks[task] for task in late}

        async def see_through(task: asyncio.Task[None], session_id: str) -> None:
            await task
            self.going.discard(session_id)
            await left_over(session_id)

        self._late = {asyncio.create_task(see_through(task, tasks[task])) for task in late}
        return frozenset(self.going)

    async def close(self) -> None:
        """Let go of them: the next daemon finds the intents."""
        for task in self._late:
            task.cancel()
        await asyncio.gather(*self._late, return_exceptions=True)


async def attempt(recovery: Recovery, intent: Intent) -> None:
    """Finish or undo what an intent stands for. Never raises: one that cannot be finished must not keep all others from being served."""
    log.info("unfinished", kind=intent.kind, session=intent.session_id)
    try:
        await recovery(intent)
    except RametError as error:
        log.error("cannot be finished now", kind=intent.kind, session=intent.session_id, error=error.message)
    except Exception as error:
        # A damaged repository, or a fault of ours: a daemon that does not start serves nobody.
        log.error("cannot be finished", kind=intent.kind, session=intent.session_id, exc_info=error)
