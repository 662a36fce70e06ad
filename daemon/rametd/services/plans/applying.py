"""Applying plans: all of what one says, in one unit of work, or nothing; and applied again, just what differs."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from rametd.domain.errors import BadPlanError
from rametd.domain.models import Mode, Session
from rametd.domain.plans import PlanThread
from rametd.environment import Variables
from rametd.services.core import Core
from rametd.services.creation.creator import Creator
from rametd.services.creation.wanted import NewSession
from rametd.services.ids import new_id
from rametd.services.plans.changes import CREATE, Change, compare, wanted_rows
from rametd.services.plans.commit import Commit
from rametd.services.plans.world import Checked, check_plan
from rametd.services.settings import for_repository
from rametd.store import Unit

Remember = Callable[[Unit, "Applied"], None]


@dataclass(frozen=True, slots=True)
class Applied:
    """What was, or would be, changed."""

    plan_id: str
    changes: Sequence[Change]
    session_ids: Sequence[str] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Application:
    """A plan to be applied. ``file`` is absolute, or "" for a text from nowhere."""

    path: Path
    text: str
    file: str
    principal: str
    environment: Variables = field(default_factory=Variables, repr=False)


class Plans:
    def __init__(self, core: Core, creator: Creator) -> None:
        self._core = core
        self._creator = creator
        self._locks: dict[
            Path, asyncio.Lock
        ] = {}  # by repository: what a plan is compared with must not change under it

    async def check(self, path: Path, text: str, file: str, *, by_session: bool = False) -> Checked:
        return await check_plan(self._core, path, text, file, by_session=by_session)

    async def apply(self, application: Application, remember: Remember, *, dry_run: bool = False) -> Applied:
        """Raises `BadPlanError` with the first problem, and `WrongStateError` for what cannot be changed any more."""
        info = await self._core.git.discover(application.path)
        async with self._locks.setdefault(info.common_dir, asyncio.Lock()):
            checked = await check_plan(self._core, application.path, application.text, application.file)
            if checked.errors:
                raise bad_plan(checked)
            plan_id = checked.stored.id if checked.stored is not None else new_id()
            rows = wanted_rows(checked, plan_id)
            changes = compare(checked.known, checked.sessions, rows)
            warnings = tuple(str(problem) for problem in checked.problems)
            if dry_run:
                return Applied(checked.stored.id if checked.stored is not None else "", changes, (), warnings)
            return await self._apply(application, checked, plan_id, rows, changes, warnings, remember)

    async def _apply(
        self,
        application: Application,
        checked: Checked,
        plan_id: str,
        rows: list[PlanThread],
        changes: list[Change],
        warnings: tuple[str, ...],
        remember: Remember,
    ) -> Applied:
        core = self._core
        repo = checked.repo
        config = await for_repository(core, repo, checked.info) if repo is not None else core.config
        commit = Commit(
            core,
            checked,
            rows,
            changes,
            plan_id=plan_id,
            file=application.file,
            principal=application.principal,
            default_mode=config.permissions.default_mode,
        )
        create = {change.thread for change in changes if change.action == CREATE}
        news = [self._new(application, checked, row) for row in rows if row.id in create]
        if news:  # paths go from threads that are there to new ones: they are let go before anybody takes them
            news[0] = replace(news[0], admit=lambda unit, session: commit.hand_over(unit))
        applied = Applied(plan_id, changes, (), warnings)

        def work(unit: Unit, made: Sequence[Session]) -> None:
            nonlocal applied
            ids = commit.run(unit, made)
            core.failpoint.hit("plan.storing")
            applied = replace(applied, changes=commit.changes, session_ids=ids)
            remember(unit, applied)

        core.failpoint.hit("plan.checked")
        if news:
            created = await self._creator.create_all(news, work)
            told = dict.fromkeys(warning for each in created for warning in each.warnings)
            applied = replace(applied, warnings=(*applied.warnings, *told))
        else:

            def change(unit: Unit) -> None:
                commit.hand_over(unit)
                work(unit, ())

            await core.store.write(change)
        core.failpoint.hit("plan.stored")
        for session_id in commit.touched:
            runner = core.live.get(session_id)
            if runner is not None:
                await runner.follow_settings()
            core.live.wake(session_id)
        core.live.schedule()
        return applied

    def _new(self, application: Application, checked: Checked, row: PlanThread) -> NewSession:
        names = {each.id: each.name for each in checked.threads}
        after = [
            checked.sessions[name].id if name in checked.sessions else names[name]
            for name in row.after
            if not (name in checked.known and checked.known[name].ended)
        ]
        return NewSession(
            path=application.path,
            prompt=row.prompt,
            name=row.name,
            branch=row.branch,
            base_ref=row.base,
            agent=row.agent or "claude",
            model=row.model,
            mode=Mode(row.mode) if row.mode else None,
            budget_usd=row.budget_usd,
            owns=row.owns,
            forbids=row.forbids,
            after=tuple(after),
            environment=application.environment,
            principal=application.principal,
            plan_id=row.plan_id,
            thread=row.id,
            claims_later=True,
        )


def bad_plan(checked: Checked) -> BadPlanError:
    first, count = checked.errors[0], len(checked.errors)
    more = f" (and {count - 1} more: rametctl plan check)" if count > 1 else ""
    return BadPlanError(
        f"{first}{more}", hint=first.hint or "correct it", key=first.key, line=str(first.line), code=first.code
    )
