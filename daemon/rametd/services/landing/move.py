"""Moving a target, once: an operation before, and the branch itself says afterwards whether it has moved."""

import asyncio
from collections.abc import Sequence
from functools import partial

import structlog

from rametd.domain.errors import RametError
from rametd.domain.landing import LandingState
from rametd.domain.operations import Kind, Operation
from rametd.git.repository import RepositoryInfo
from rametd.services.core import Core
from rametd.services.landing import entries
from rametd.services.landing.outcomes import Outcomes
from rametd.services.landing.steps import Step

log = structlog.get_logger()

S = LandingState


class Mover:
    """Of one target."""

    def __init__(self, core: Core, outcomes: Outcomes, repo_id: str, target: str) -> None:
        self._core = core
        self._outcomes = outcomes
        self._repo_id, self._target = repo_id, target
        self._moving: asyncio.Task[bool] | None = None

    async def finish(self) -> None:
        """Wait for a move that is under way: with the daemon it would leave its answer to the next start."""
        if self._moving is not None:
            await asyncio.wait([self._moving])

    async def move(self, info: RepositoryInfo, steps: Sequence[Step]) -> bool:
        """Move the target to hold the steps; returns whether anything is different now."""
        core = self._core
        moves = [step.move for step in steps]
        for step in steps:
            await self._outcomes.change(step.landing, S.MERGING, "")
        operation = await core.store.write(lambda unit: entries.begin_move(unit, moves, (self._repo_id, self._target)))
        if operation is None:
            await self._outcomes.release([step.landing for step in steps])
            return True
        core.failpoint.hit("land.intended")
        self._moving = asyncio.create_task(self._carry_out(info, operation), name=f"move-{self._target}")
        return await asyncio.shield(self._moving)

    async def _carry_out(self, info: RepositoryInfo, operation: Operation) -> bool:
        core = self._core
        old, new = operation.data["old"], operation.data["new"]
        try:
            why = await core.git.landing.targets.move(info, self._target, old, new, "ramet: land")
        except RametError as error:
            why = error.message
        core.failpoint.hit("land.moved")
        if why and not await core.git.landing.targets.holds(info, self._target, new):
            moved_on = await core.git.branch_tip(info, self._target) != old
            state, reason = (S.QUEUED, "") if moved_on else (S.WAITING, why)
            await core.store.write(lambda unit: entries.undo_move(unit, operation, state, reason))
            return moved_on
        await core.store.write(lambda unit: entries.complete_move(unit, operation))
        core.failpoint.hit("land.recorded")
        log.info("landed", target=self._target, commit=new)
        return True

    async def settle(self, info: RepositoryInfo) -> None:
        """Finish in the rows what an earlier run, or a round that failed, began in the repository."""
        core = self._core
        for operation in await core.store.read(lambda reader: reader.operations.list(kinds=(Kind.LAND,))):
            mine = (operation.data.get("repo"), operation.data.get("target")) == (self._repo_id, self._target)
            if not mine:
                continue
            if await core.git.landing.targets.holds(info, self._target, operation.data["new"]):
                await core.store.write(partial(entries.complete_move, operation=operation))
                core.failpoint.hit("land.recorded")
            else:
                await core.store.write(partial(entries.undo_move, operation=operation, state=S.QUEUED, reason=""))
