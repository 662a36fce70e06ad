"""What a session is going through that nothing else may come between: removal, archiving, restoring, rewinding, syncing."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from rametd.domain.errors import WrongStateError
from rametd.domain.models import Intent, Session
from rametd.services.core import Core
from rametd.store import Reader, Unit, load_session

DELETE = "delete"
ARCHIVE = "archive"
RESTORE = "restore"
REWIND = "rewind"
SYNC = "sync"
DROP = "drop"
LAND = "land"
"""The move of a branch by its merge queue: an intent of a session that lands, which goes on as it likes meanwhile."""
WORDS = {
    DELETE: "removed",
    ARCHIVE: "archived",
    RESTORE: "brought back",
    REWIND: "rewound",
    SYNC: "synced",
    DROP: "dropped from the trash",
}
LEAVING = WORDS.keys()
PASSING = frozenset(f"it is being {words}" for words in WORDS.values())
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

    def runs(self, key: str) -> bool:
        return key in self._tasks

    async def close(self) -> None:
        """Cut off what runs: the next daemon finds the intents."""
        for task in (tasks := list(self._tasks.values())):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Undertaking(Generic[T]):
    """A kind of intent from its beginning to its end: stored and carried out in one task a session, and given up where that fails.

    ``complete`` carries an intent through, of which every step may have been done before. ``give_up`` is for whatever it raises, for nobody would carry
    the intent on before the next start: it takes it back, or leaves it as one to be tried again.
    """

    def __init__(
        self,
        core: Core,
        name: str,
        complete: Callable[[Intent], Awaitable[T]],
        give_up: Callable[[Intent, Exception], Awaitable[None]],
    ) -> None:
        self._core = core
        self._name = name
        self._complete = complete
        self._give_up = give_up
        self._running: Running[T] = Running()

    async def begin(self, session_id: str, store: Callable[[Unit], Intent]) -> T:
        """``store`` adds the intent, or finds the one of the same kind that is there, or refuses."""

        async def carry_out() -> T:
            intent = await self._core.store.write(store)
            self._core.failpoint.hit(f"{self._name}.intended")
            return await self._attempt(intent)

        return await self._running.join(session_id, carry_out)

    async def carry_on(self, intent: Intent) -> T:
        """What a killed daemon had begun."""
        return await self._running.join(intent.session_id, lambda: self._attempt(intent))

    async def _attempt(self, intent: Intent) -> T:
        try:
            return await self._complete(intent)
        except Exception as error:
            await self._give_up(intent, error)
            raise

    async def close(self) -> None:
        await self._running.close()


def leaving(reader: Reader, session_id: str) -> Intent | None:
    """The removal, archiving, restoring, rewinding or syncing of a session that is under way, or that failed and is to be tried again."""
    return next((intent for intent in reader.intents.list(session_id) if intent.kind in LEAVING), None)


def holding(reader: Reader, repo_id: str, branch: str) -> Intent | None:
    """The same of whichever session has a branch checked out, or is about to."""
    for intent in reader.intents.list():
        if intent.kind == RESTORE:
            session = load_session(intent.data["session"])
            found = (session.repo_id, intent.data["branch"])
        elif intent.kind in LEAVING and (session_now := reader.sessions.find(intent.session_id)) is not None:
            found = (session_now.repo_id, session_now.branch)
        else:
            continue
        if found == (repo_id, branch):
            return intent
    return None


def words_of(intent: Intent) -> str:
    """What becomes of its session: it is being ..."""
    return WORDS[intent.kind]


def passing(intent: Intent) -> str:
    """Why a session that has something to do does not begin with it."""
    return f"it is being {words_of(intent)}"


def refuse_other(found: Intent | None, session: Session, kind: str) -> Intent | None:
    """``found`` where it is of the same kind. Raises `WrongStateError` where something else is under way."""
    if found is not None and found.kind != kind:
        raise WrongStateError(
            f"{session.name} is being {words_of(found)}", hint="wait until that is done, then try again"
        )
    return found


def refuse_landing(reader: Reader, session: Session, branch: str = "") -> None:
    """Raises `WrongStateError` while a merge queue moves the session's own branch, or the ``branch`` that it comes back on, and with it the files, forward."""
    moved = (session.repo_id, branch or session.branch)
    for intent in reader.intents.list():
        if intent.kind == LAND and (intent.data["repo"], intent.data["target"]) == moved:
            raise WrongStateError(f"work is landing on {moved[1]} at this moment", hint="try again")
