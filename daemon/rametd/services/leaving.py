"""What a session is going through that nothing else may come between: removal, archiving, restoring, rewinding, syncing."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from rametd.domain.errors import WrongStateError
from rametd.domain.models import Intent, Session
from rametd.store import Reader

DELETE = "delete"
ARCHIVE = "archive"
RESTORE = "restore"
REWIND = "rewind"
SYNC = "sync"
DROP = "drop"
LEAVING = frozenset({DELETE, ARCHIVE, RESTORE, REWIND, SYNC, DROP})
TREE = "tree"
"""In an intent's data, from when its tree may go on: "1" where it was there then."""
FAILED = "failed"
"""In an intent's data: in words, why it could not be finished."""

T = TypeVar("T")


class Running(Generic[T]):
    """One task a key, such as a session: a second caller waits for the first one's, and one that hangs up does not cut it off."""

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[T]] = {}

    async def join(self, key: str, begin: Callable[[], Awaitable[T]]) -> T:
        """``begin`` stores the intent too: of a caller that hangs up between the two, an intent would be left that nobody carries on."""
        task = self._tasks.get(key)
        if task is None:

            async def run() -> T:
                return await begin()

            task = self._tasks[key] = asyncio.create_task(run(), name=f"clear-{key}")
            task.add_done_callback(lambda _: self._tasks.pop(key, None))
        return await asyncio.shield(task)

    async def close(self) -> None:
        """Cut off what runs: the next daemon finds the intents."""
        for task in (tasks := list(self._tasks.values())):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def leaving(reader: Reader, session_id: str) -> Intent | None:
    """The removal, archiving, restoring, rewinding or syncing of a session that is under way, or that failed and is to be tried again."""
    return next((intent for intent in reader.intents.list(session_id) if intent.kind in LEAVING), None)


def refuse_other(found: Intent | None, session: Session, kind: str) -> Intent | None:
    """``found`` where it is of the same kind. Raises `WrongStateError` where something else is under way."""
    if found is not None and found.kind != kind:
        words = {
            DELETE: "removed",
            ARCHIVE: "archived",
            RESTORE: "brought back",
            REWIND: "rewound",
            SYNC: "synced",
            DROP: "dropped from the trash",
        }[found.kind]
        raise WrongStateError(f"{session.name} is being {words}", hint="wait until that is done, then try again")
    return found
