"""The first checkpoint of a session, of where it begins: made beside the start of its agent, or, where it begins without a prompt, by itself.

Nothing is stored about it: a daemon that is started after one was killed makes it for every session that no agent has worked in and that has none.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import structlog

from rametd.domain.errors import SessionNotFoundError, WrongStateError
from rametd.domain.models import Session
from rametd.domain.states import State
from rametd.services.core import Core
from rametd.services.worktrees.checkpoints import Checkpointer
from rametd.store import Reader

log = structlog.get_logger()


class Beginnings:
    def __init__(self, core: Core, checkpointer: Checkpointer, prepared: Callable[[str], Awaitable[None]]) -> None:
        self._core = core
        self._checkpointer = checkpointer
        self._prepared = prepared  # returns once no setup of a session runs
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, session: Session) -> None:
        """A session hook: one without a prompt has its first checkpoint in a moment; nobody waits for it."""
        if unused(session):
            self._keep([session])

    async def before_prompt(self, session: Session) -> None:
        """A session hook: the first prompt finds a checkpoint of where the session begins."""
        await self._checkpointer.first(session.id, self._checkpointer.alone(session.id))

    async def recover(self, wanted: Callable[[str], bool]) -> None:
        """Have those made that a killed daemon did not get to, once there is time for it."""

        def without(reader: Reader) -> list[Session]:
            missing = [each for each in reader.sessions.setup_due() if unused(each) and wanted(each.id)]
            return [each for each in missing if reader.checkpoints.latest(each.id) is None]

        if sessions := await self._core.store.read(without):
            self._keep(sessions)

    async def close(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _keep(self, sessions: Sequence[Session]) -> None:
        """One after the other: each is a look at all files."""

        async def keep() -> None:
            await self._core.recovered.wait()
            for session in sessions:
                await self._prepared(session.id)  # what a setup brings belongs to the beginning
                try:
                    await self._checkpointer.first(session.id, self._checkpointer.still(session.id))
                except (WrongStateError, SessionNotFoundError) as error:
                    log.info("no first checkpoint", session=session.id, why=error.message)

        task = asyncio.create_task(keep(), name=f"first-checkpoint-{sessions[0].id}")
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("keeping beginnings failed", exc_info=error)


def unused(session: Session) -> bool:
    """Whether no agent has worked in it, nor is about to."""
    return session.state == State.IDLE and session.generation == 0
