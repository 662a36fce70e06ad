"""What somebody has done in a spare, told: where it stays, and which session was given it."""

import asyncio
import shlex
from collections.abc import Sequence
from pathlib import Path

import structlog
from ramet.v1 import event_pb2

from rametd.domain.errors import RametError
from rametd.domain.models import Session
from rametd.git import RepositoryInfo
from rametd.services import events
from rametd.services.core import Core
from rametd.services.words import listed

log = structlog.get_logger()

NAMED = 5
"""Files that a warning names."""
SETTLE_S = 2.0
"""From a session's creation to the look: its first prompt is on the way, and must not share the machine with that."""


class Handwork:
    """Tells of it in warnings, those of the repository or of the session."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._looks: set[asyncio.Task[None]] = set()

    async def stays(self, kept: Sequence[str], path: Path, repo_id: str) -> None:
        """A spare was left in place; ``kept`` has a line for each reason."""
        for words in kept:
            adopt = shlex.join(("rametctl", "adopt", str(path)))
            await self._tell(f"{words}; it stays, and is no spare any more: {adopt} has a session there", repo_id)

    def look_after(self, session: Session, info: RepositoryInfo) -> None:
        """Look, in the background, for what a session was given with a spare whose files nobody had looked at."""
        task = asyncio.create_task(self._look(session, info), name=f"look-{session.id}")
        self._looks.add(task)
        task.add_done_callback(self._looks.discard)

    async def close(self) -> None:
        for task in self._looks:
            task.cancel()
        if self._looks:
            await asyncio.wait(self._looks)

    async def _look(self, session: Session, info: RepositoryInfo) -> None:
        await asyncio.sleep(SETTLE_S)
        where = (session.worktree, session.branch, session.base_commit)
        try:
            left = await self._core.git.spares.left(info, *where, session.create_time)
        except RametError as error:  # its tree may be gone already
            log.warning("spare", id=session.id, error=error.message)
            return
        if left:
            words = "somebody had worked in this worktree before the session was given it"
            await self._tell(f"{words}: look at {listed(list(left), NAMED)}", session.repo_id, session.id)

    async def _tell(self, words: str, repo_id: str, session_id: str = "") -> None:
        log.warning("somebody's work in a spare", words=words)
        event = events.make(event_pb2.Warning(message=words), session_id=session_id, repo_id=repo_id)
        await self._core.store.write(lambda unit: unit.events.append(event))
