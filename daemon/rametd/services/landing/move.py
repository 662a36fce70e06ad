"""Move a target exactly once: store an operation first; afterwards the commit of the branch shows
whether it was moved."""

import json
from collections import Counter
from collections.abc import Sequence

import structlog

from rametd.domain.errors import ChangedError, CheckoutIncompleteError, RametError
from rametd.domain.landing import LandingState
from rametd.domain.models import DAEMON
from rametd.domain.operations import Caller, Kind, Operation
from rametd.git import RepositoryInfo
from rametd.services.core import Core
from rametd.services.landing import entries, words
from rametd.services.landing.outcomes import Outcomes
from rametd.services.landing.steps import Step
from rametd.services.operations import new_operation
from rametd.services.repos import info_of

log = structlog.get_logger()

S = LandingState
TRIES = 10
"""Failures in a row, about half a minute, after which to ask the person."""


class Mover:
    """Moves the targets of all queues."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._outcomes = Outcomes(core)
        self._failures = Counter[str]()  # of git in a row, by entry
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
        why: str | RametError
        try:
            why = await core.git.landing.targets.move(info, data["target"], data["old"], data["new"], "ramet: land")
        except RametError as error:
            why = error
        core.failpoint.hit("land.moved")
        if not why or await self._has_moved(info, operation):
            await self._moved(operation)
            return True
        moved_on = await core.git.branches.tip(info, data["target"]) != data["old"]
        state, reason = (S.QUEUED, "") if moved_on else self._blocked(operation, why)
        await core.store.write(lambda unit: entries.undo_move(unit, operation, state, reason))
        return moved_on

    def _blocked(self, operation: Operation, why: str | RametError) -> tuple[LandingState, str]:
        """Return the state and the reason of entries whose target cannot be moved now."""
        if isinstance(why, str):
            return S.WAITING, why
        steps = json.loads(operation.data["steps"])
        self._failures.update(steps.keys())
        if max(self._failures[each] for each in steps) < TRIES and not isinstance(why, CheckoutIncompleteError):
            return S.WAITING, f"{entries.reason_of(why)} (retried automatically)"
        for each in steps:
            del self._failures[each]
        return S.HELD, entries.reason_of(why)

    async def _settle(self, operation: Operation) -> bool:
        core, data = self._core, operation.data
        info = await self._info(operation)
        moved = await self._has_moved(info, operation)
        if moved:
            await self._moved(operation)
            return True
        state, reason = S.QUEUED, ""
        try:
            paths = await core.git.landing.targets.settle(info, data["target"], data["old"], data["new"])
        except RametError as error:
            state, reason = S.HELD, entries.reason_of(error)
        else:
            if paths:
                log.warning(
                    "files of an interrupted landing taken back", target=data["target"], files=paths[: words.LISTED]
                )
        await core.store.write(lambda unit: entries.undo_move(unit, operation, state, reason))
        return False

    async def _keep_operation(self, operation: Operation, error: BaseException | None) -> None:
        """Keep the operation: the next round finds out from the branch whether it was moved."""

    async def _moved(self, operation: Operation) -> None:
        for each in json.loads(operation.data["steps"]):
            self._failures.pop(each, None)
        await self._core.store.write(lambda unit: entries.complete_move(unit, operation))
        self._core.failpoint.hit("land.recorded")
        log.info("landed", target=operation.data["target"], commit=operation.data["new"])

    async def _has_moved(self, info: RepositoryInfo, operation: Operation) -> bool:
        return await self._core.git.landing.targets.holds(info, operation.data["target"], operation.data["new"])

    async def _info(self, operation: Operation) -> RepositoryInfo:
        core = self._core
        return await info_of(core, await core.store.read(lambda reader: reader.repos.get(operation.data["repo"])))
