"""First checkpoints of sessions: created while the agent starts, or in the background for a session
without a prompt.

No row records that one is due: after a kill the next daemon creates one for each session that has
neither an agent nor a checkpoint.
"""

from collections.abc import Awaitable, Callable, Sequence

import structlog

from rametd.domain.errors import SessionNotFoundError, WrongStateError
from rametd.domain.models import Session
from rametd.domain.states import State
from rametd.services.core import Core
from rametd.services.tasks import Tasks
from rametd.services.worktrees.checkpoints import Checkpointer
from rametd.store import Reader

log = structlog.get_logger()


class Beginnings:
    def __init__(self, core: Core, checkpointer: Checkpointer, prepared: Callable[[str], Awaitable[None]]) -> None:
        self._core = core
        self._checkpointer = checkpointer
        self._prepared = prepared  # returns once no setup of a session runs
        self._tasks = Tasks("first-checkpoint")

    def begin(self, session: Session) -> None:
        """A session hook: create the first checkpoint of a session without a prompt in the
        background."""
        if unused(session):
            self._keep([session])

    async def before_prompt(self, session: Session) -> None:
        """A session hook: create the first checkpoint before the first prompt."""
        await self._checkpointer.first(session.id, self._checkpointer.locked(session.id))

    async def recover(self, wanted: Callable[[str], bool]) -> None:
        """Create the first checkpoints that a killed daemon did not create, once the daemon
        serves."""

        def without(reader: Reader) -> list[Session]:
            missing = [each for each in reader.sessions.setup_due() if unused(each) and wanted(each.id)]
            return [each for each in missing if reader.checkpoints.latest(each.id) is None]

        if sessions := await self._core.store.read(without):
            self._keep(sessions)

    async def close(self) -> None:
        await self._tasks.close()

    def _keep(self, sessions: Sequence[Session]) -> None:
        """Create first checkpoints one after another: each reads all files."""

        async def keep() -> None:
            await self._core.recovered.wait()
            for session in sessions:
                await self._prepared(session.id)  # the first checkpoint includes the results of the setup
                try:
                    await self._checkpointer.first(session.id, self._checkpointer.still(session.id))
                except (WrongStateError, SessionNotFoundError) as error:
                    log.info("no first checkpoint", session=session.id, why=error.message)

        self._tasks.start(sessions[0].id, keep())


def unused(session: Session) -> bool:
    """Whether the session never had an agent, and none is about to start."""
    return session.state == State.IDLE and session.generation == 0
