"""Having what checkpoints keep be on the disk, behind their rows: nobody waits for a disk at the end of a turn.

It is asked to at once, so that a loss of power in the very next moments alone can take a checkpoint; `upkeep.power` finds and mends that. Whatever
overwrites or removes files makes sure of it first (`GitContext.make_durable`).
"""

import asyncio
from pathlib import Path

import structlog
from ramet.v1 import event_pb2

from rametd.domain.errors import RametError
from rametd.domain.models import Session
from rametd.git import RepositoryInfo
from rametd.services import events
from rametd.services.core import Core
from rametd.services.persistence import write_for_sure

log = structlog.get_logger()


class Flusher:
    """One at a time for each repository: all that ask while it is under way share the next."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._waiting: dict[Path, dict[str, Session]] = {}
        self._tasks: dict[Path, asyncio.Task[None]] = {}

    def soon(self, info: RepositoryInfo, session: Session) -> None:
        """Have all that was written until now for a session be durable, in a task."""
        place = info.common_dir
        self._waiting.setdefault(place, {})[session.id] = session
        if place not in self._tasks:
            self._tasks[place] = asyncio.create_task(self._run(info), name=f"flush-{info.name}")

    async def close(self) -> None:
        """Wait for what is under way."""
        await asyncio.gather(*self._tasks.values())

    async def _run(self, info: RepositoryInfo) -> None:
        try:
            while sessions := self._waiting.pop(info.common_dir, {}):
                for (
                    session
                ) in sessions.values():  # nearly always on one disk, where the second has nothing left to write
                    await self._one(info, session)
        finally:
            del self._tasks[info.common_dir]

    async def _one(self, info: RepositoryInfo, session: Session) -> None:
        try:
            await self._core.git.make_durable(info, session.worktree)
        except RametError as error:
            log.warning("a checkpoint may not be on the disk", session=session.id, error=error.message)
            words = f"whether its newest checkpoint is on the disk cannot be told: {error.message}"
            event = events.make(event_pb2.Warning(message=words), session_id=session.id, repo_id=session.repo_id)
            await write_for_sure(self._core.store, lambda unit: unit.events.append(event))
