"""Move a target exactly once: store an operation first; afterwards the commit of the branch shows
whether it was moved."""

from collections.abc import Sequence

import structlog

from rametd.domain.errors import ChangedError, RametError
from rametd.domain.landing import LandingState
from rametd.domain.models import DAEMON
from rametd.domain.operations import Caller, Kind, Operation
from rametd.git import RepositoryInfo
from rametd.services.core import Core
from rametd.services.landing import entries
from rametd.services.landing.outcomes import Outcomes
from rametd.services.landing.steps import Step
from rametd.services.operations import new_operation
from rametd.services.repos import info_of

log = structlog.get_logger()

S = LandingState


class Mover:
    """Moves the targets of all queues."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._outcomes = Outcomes(core)
        core.operations.handle(Kind.LAND, self._keep_operation, self._complete, self._settle)

    async def move(self, repo_id: str, target: str, steps: Sequence[Step]) -> bool:
        """Move the target to the steps; return whether anything changed."""
        for step in steps:
            await self._outcomes.change(step.landing, S.MERGING, "")
        move = entries.move_to([step.move for step in steps], repo_id, target)
        new = new_operation(Kind.LAND, steps[0].landing.session_id, Caller(DAEMON), **move)
        try:
            moved: bool = await self._core.operations.run(
                new, lambda unit, failed: entries.admit_move(unit, [step.move for step in steps], repo_id, target)
            )
        except ChangedError:
            await self._outcomes.release([step.landing for step in steps])
            return True
        return moved

    async def settle(self, repo_id: str, target: str) -> None:
        """Complete the rows of moves that an earlier daemon or a failed round left unfinished."""
        for operation in await self._core.store.read(lambda reader: reader.operations.list(kinds=(Kind.LAND,))):
            if (operation.data["repo"], operation.data["target"]) == (repo_id, target):
                await self._core.operations.resume(operation)

    async def _complete(self, operation: Operation) -> bool:
        core, data = self._core, operation.data
        info = await self._info(operation)
        try:
            why = await core.git.landing.targets.move(info, data["target"], data["old"], data["new"], "ramet: land")
        except RametError as error:
            why = error.message
        core.failpoint.hit("land.moved")
        if not why or await self._has_moved(info, operation):
            await self._moved(operation)
            return True
        moved_on = await core.git.branches.tip(info, data["target"]) != data["old"]
        state, reason = (S.QUEUED, "") if moved_on else (S.WAITING, why)
        await core.store.write(lambda unit: entries.undo_move(unit, operation, state, reason))
        return moved_on

    async def _settle(self, operation: Operation) -> bool:
        moved = await self._has_moved(await self._info(operation), operation)
        if moved:
            await self._moved(operation)
        else:
            await self._core.store.write(lambda unit: entries.undo_move(unit, operation, S.QUEUED, ""))
        return moved

    async def _keep_operation(self, operation: Operation, error: BaseException | None) -> None:
        """Keep the operation: the next round finds out from the branch whether it was moved."""

    async def _moved(self, operation: Operation) -> None:
        await self._core.store.write(lambda unit: entries.complete_move(unit, operation))
        self._core.failpoint.hit("land.recorded")
        log.info("landed", target=operation.data["target"], commit=operation.data["new"])

    async def _has_moved(self, info: RepositoryInfo, operation: Operation) -> bool:
        return await self._core.git.landing.targets.holds(info, operation.data["target"], operation.data["new"])

    async def _info(self, operation: Operation) -> RepositoryInfo:
        core = self._core
        return await info_of(core, await core.store.read(lambda reader: reader.repos.get(operation.data["repo"])))
