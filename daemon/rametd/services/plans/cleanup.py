"""Clean up a plan: remove sessions that have landed, and report why the others stay."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from ramet.v1 import event_pb2

from rametd.domain.errors import RametError
from rametd.domain.operations import Caller
from rametd.domain.plans import Plan
from rametd.domain.states import BUSY_STATES
from rametd.services import events
from rametd.services.archiving.remove import Remover
from rametd.services.core import Core
from rametd.services.plans.status import ThreadStatus, plan_status
from rametd.store import Unit


@dataclass(frozen=True, slots=True)
class CleanedUp:
    """Result of one thread: whether it was removed, the reason if not, and warnings of the
    removal."""

    thread: str
    removed: bool
    reason: str
    warnings: tuple[str, ...] = ()


class PlanCleaner:
    def __init__(self, core: Core, remover: Remover) -> None:
        self._core = core
        self._remover = remover

    async def clean_up(
        self, plan: Plan, principal: str, remember: Callable[[Unit, list[CleanedUp], bool], None], *, dry_run: bool
    ) -> tuple[list[CleanedUp], bool]:
        """Results by thread, and whether the plan was deleted.

        Sessions are removed as by `rm`: with an operation, to the trash. The row of a thread first
        records that it has landed, so that applying the plan again does not create the session
        again, even after a kill in between.
        """
        statuses = await plan_status(self._core, plan)
        steps = [await self._one(status, principal, dry_run=dry_run) for status in statuses]
        empty = all(step.removed for step in steps)
        if dry_run:
            return steps, empty

        def forget(unit: Unit) -> bool:
            # The plan may have been applied again meanwhile.
            left = [each for each in unit.plans.threads(plan.id) if unit.sessions.find(each.session_id) is not None]
            gone = empty and not left
            if gone and unit.plans.get(plan.id) is not None:
                unit.plans.remove(plan.id)
                payload = event_pb2.PlanRemoved(plan_id=plan.id, name=plan.name)
                unit.events.append(events.make(payload, repo_id=plan.repo_id, principal=principal))
            remember(unit, steps, gone)
            return gone

        return steps, await self._core.store.write(forget)

    async def _one(self, status: ThreadStatus, principal: str, *, dry_run: bool) -> CleanedUp:
        thread, session = status.thread, status.session
        if session is None:
            return CleanedUp(thread.id, True, status.landed_reason)
        if not status.landed:
            return CleanedUp(thread.id, False, f"it has not landed: {status.landed_reason}")
        if session.state in BUSY_STATES:
            return CleanedUp(
                thread.id, False, f"it has landed, but is {session.state}: `rametctl stop {session.reference}`"
            )
        warnings: tuple[str, ...] = ()
        if not dry_run:
            ended = replace(thread, ended=status.landed_reason)
            await self._core.store.write(lambda unit: unit.plans.put_thread(ended))
            self._core.failpoint.hit("plan.ended")
            try:
                warnings = tuple((await self._remover.remove(session, force=True, caller=Caller(principal))).warnings)
            except RametError as error:
                return CleanedUp(thread.id, False, f"it has landed, but cannot be removed now: {error.message}")
            self._core.failpoint.hit("plan.cleaned")
        return CleanedUp(thread.id, True, status.landed_reason, warnings)
