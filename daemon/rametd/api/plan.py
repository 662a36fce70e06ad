"""PlanService."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc
from ramet.v1 import common_pb2, plan_pb2, plan_pb2_grpc

from rametd.api.calls import Call, Calls, mutation
from rametd.api.context import environment, freshen, principal
from rametd.api.paging import position_of, size_of, time_and_id, token_of
from rametd.api.repo import absolute, resolve_repo
from rametd.domain.errors import AmbiguousError, InvalidInputError, PlanNotFoundError, RepoNotFoundError
from rametd.domain.models import OWNER, Mode, Repo
from rametd.domain.plans import Plan, PlanThread
from rametd.environment import Variables
from rametd.plans import Problem
from rametd.services import repos
from rametd.services.core import Core
from rametd.services.messages import to_message
from rametd.services.plans.applying import Application, Applied, Plans, planned_rows
from rametd.services.plans.cleanup import CleanedUp, PlanCleaner
from rametd.services.plans.converge import FAILED, Converger
from rametd.services.plans.status import ThreadStatus, plan_status
from rametd.services.views import MODES, sessions_messages
from rametd.store import Reader, Unit

Context = grpc.aio.ServicerContext[Any, Any]

UNSPECIFIED = common_pb2.PERMISSION_MODE_UNSPECIFIED


def find_plan(reader: Reader, name: str, repo: Repo | None) -> Plan:
    """Return a plan by id, file, or name; "" means the only one of the repository. Raise
    `PlanNotFoundError`, `AmbiguousError`."""
    plans = reader.plans.list()
    here = [plan for plan in plans if repo is not None and plan.repo_id == repo.id]
    if name:
        for found in (
            [plan for plan in plans if plan.id == name],
            [plan for plan in here if plan.file == name] or [plan for plan in plans if plan.file == name],
            [plan for plan in here if plan.name == name] or [plan for plan in plans if plan.name == name],
        ):
            if len(found) == 1:
                return found[0]
            if found:
                raise _ambiguous(f"{name!r} fits several plans", found)
        raise PlanNotFoundError(f"no plan {name!r} is applied", hint="`rametctl plan apply` applies one")
    if len(here) == 1:
        return here[0]
    if not here:
        raise PlanNotFoundError("no plan is applied in this repository", hint="`rametctl plan apply` applies one")
    raise _ambiguous("several plans are applied here", here)


def _ambiguous(words: str, plans: Sequence[Plan]) -> AmbiguousError:
    matches = ", ".join(f"{plan.name} ({plan.file or plan.id})" for plan in plans)
    return AmbiguousError(f"{words}: {matches}", hint="name one of them", matches=matches)


class PlanServicer(plan_pb2_grpc.PlanServiceServicer):
    def __init__(self, core: Core, calls: Calls, plans: Plans, cleaner: PlanCleaner, converger: Converger) -> None:
        self._core = core
        self._calls = calls
        self._plans = plans
        self._cleaner = cleaner
        self._converger = converger

    async def CheckPlan(self, request: plan_pb2.CheckPlanRequest, context: Context) -> plan_pb2.CheckPlanResponse:
        checked = await self._plans.check(
            absolute(request.path), request.text, file_of(request.file), by_session=principal.get() != OWNER
        )
        return plan_pb2.CheckPlanResponse(
            problems=[problem_message(problem) for problem in checked.problems],
            threads=[thread_message(row) for row in planned_rows(checked, "")],
            ok=not checked.errors,
            name=checked.name,
        )

    @mutation
    async def ApplyPlan(self, request: plan_pb2.ApplyPlanRequest, call: Call) -> plan_pb2.ApplyPlanResponse:
        application = Application(
            path=absolute(request.path),
            text=request.text,
            file=file_of(request.file),
            principal=principal.get(),
            environment=Variables(environment.get()),
        )

        stored = plan_pb2.ApplyPlanResponse()

        def remember(unit: Unit, applied: Applied) -> None:
            stored.CopyFrom(applied_message(unit, applied))
            call.remember(unit, stored)

        applied = await self._plans.apply(application, remember, dry_run=request.dry_run)
        if request.dry_run:
            return await self._core.store.read(lambda reader: applied_message(reader, applied))
        threads = await self._core.store.read(lambda reader: sessions_of(reader, applied.plan_id))
        await freshen(self._core, *threads)  # sessions of the plan's previous version
        del stored.warnings[:]
        stored.warnings.extend(applied.warnings)
        return stored

    async def GetPlan(self, request: plan_pb2.GetPlanRequest, context: Context) -> plan_pb2.GetPlanResponse:
        plan = await self._find(request.plan, request.path)
        statuses = await plan_status(self._core, plan)
        return await self._core.store.read(
            lambda reader: plan_pb2.GetPlanResponse(
                plan=plan_message(reader, plan), threads=[status_message(reader, status) for status in statuses]
            )
        )

    async def ListPlans(self, request: plan_pb2.ListPlansRequest, context: Context) -> plan_pb2.ListPlansResponse:
        repo_id = (await resolve_repo(self._core, request.repo)).id if request.repo else None
        size = size_of(request.page_size)
        after = position_of("plans", request.page_token, time_and_id)

        def work(reader: Reader) -> plan_pb2.ListPlansResponse:
            found = reader.plans.list(repo_id, after=after, limit=size + 1)
            page = found[:size]
            token = token_of("plans", [page[-1].create_time, page[-1].id]) if len(found) > size else ""
            return plan_pb2.ListPlansResponse(
                plans=[plan_message(reader, plan) for plan in page], next_page_token=token
            )

        return await self._core.store.read(work)

    @mutation
    async def ConvergePlan(self, request: plan_pb2.ConvergePlanRequest, call: Call) -> plan_pb2.ConvergePlanResponse:
        plan = await self._find(request.plan, request.path)
        await freshen(self._core, *await self._core.store.read(lambda reader: sessions_of(reader, plan.id)))
        steps = await self._converger.converge(plan, call.principal, remote=request.remote, dry_run=request.dry_run)
        return plan_pb2.ConvergePlanResponse(
            steps=[
                plan_pb2.ConvergeStep(
                    thread=step.thread,
                    branch=step.branch,
                    base=step.base,
                    action=step.action,
                    message=step.message,
                    title=step.title,
                    pull_request=step.pull_request,
                    url=step.url,
                )
                for step in steps
            ],
            failed=sum(step.action == FAILED for step in steps),
        )

    @mutation
    async def CleanUpPlan(self, request: plan_pb2.CleanUpPlanRequest, call: Call) -> plan_pb2.CleanUpPlanResponse:
        def remember(unit: Unit, steps: list[CleanedUp], removed: bool) -> None:
            call.remember(unit, cleaned_message(steps, removed))

        plan = await self._find(request.plan, request.path)
        steps, removed = await self._cleaner.clean_up(plan, call.principal, remember, dry_run=request.dry_run)
        return cleaned_message(steps, removed)

    async def _find(self, name: str, path: str) -> Plan:
        repo: Repo | None = None
        if path:
            try:
                repo = await repos.around(self._core, absolute(path))
            except RepoNotFoundError:
                if not name:
                    raise
        return await self._core.store.read(lambda reader: find_plan(reader, name, repo))


def file_of(file: str) -> str:
    """Raise `InvalidInputError` for a relative path, which would be relative to the daemon's
    directory."""
    if file and not Path(file).is_absolute():
        raise InvalidInputError(f"the plan's file {file!r} is not an absolute path", hint="give the absolute path")
    return file


def problem_message(problem: Problem) -> plan_pb2.PlanProblem:
    return to_message(plan_pb2.PlanProblem, problem)


def thread_message(thread: PlanThread) -> plan_pb2.Thread:
    mode = MODES[Mode(thread.mode)] if thread.mode else UNSPECIFIED
    return to_message(plan_pb2.Thread, thread, mode=mode)


def applied_message(reader: Reader, applied: Applied) -> plan_pb2.ApplyPlanResponse:
    found = [reader.sessions.find(session_id) for session_id in applied.session_ids]
    sessions = sessions_messages(reader, [session for session in found if session is not None])
    return to_message(plan_pb2.ApplyPlanResponse, applied, sessions=sessions)


def plan_message(reader: Reader, plan: Plan) -> plan_pb2.Plan:
    threads = reader.plans.threads(plan.id)
    sessions = [reader.sessions.find(thread.session_id) for thread in threads]
    return to_message(
        plan_pb2.Plan,
        plan,
        repo=reader.repos.get(plan.repo_id).name,
        threads=sum(not thread.dropped for thread in threads),
        cost_usd=sum(session.cost_usd or 0.0 for session in sessions if session is not None),
    )


def status_message(reader: Reader, status: ThreadStatus) -> plan_pb2.ThreadStatus:
    session = reader.sessions.find(status.thread.session_id)
    return to_message(
        plan_pb2.ThreadStatus,
        status,
        thread=thread_message(status.thread),
        session=sessions_messages(reader, [session])[0] if session is not None else None,
        dirty=len(status.dirty),
        place=status.thread.position if not status.thread.dropped else 0,
    )


def cleaned_message(steps: list[CleanedUp], removed: bool) -> plan_pb2.CleanUpPlanResponse:
    return plan_pb2.CleanUpPlanResponse(
        steps=[to_message(plan_pb2.CleanUpStep, step) for step in steps], plan_removed=removed
    )


def sessions_of(reader: Reader, plan_id: str) -> list[str]:
    """Return the existing sessions of a plan's threads."""
    threads = reader.plans.threads(plan_id)
    return [each.session_id for each in threads if reader.sessions.find(each.session_id) is not None]
