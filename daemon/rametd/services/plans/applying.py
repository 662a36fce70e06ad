"""Apply plans, completely or not at all, in one unit of work. Applying a plan again changes only
what differs."""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ramet.v1 import event_pb2, plan_pb2

from rametd.domain.errors import BadPlanError, ChangedError, WrongStateError
from rametd.domain.models import DAEMON, Mode, Repo, Session
from rametd.domain.plans import Plan, PlanThread
from rametd.domain.states import State
from rametd.environment import Variables
from rametd.services import briefing, events
from rametd.services.core import Core
from rametd.services.creation.creator import Creator
from rametd.services.creation.request import NewSession
from rametd.services.delivery import TURN_STATES, add_prompt, has_agent, post, withdraw
from rametd.services.ids import new_id
from rametd.services.lifecycle import log_update
from rametd.services.ownership.claims import check_claims
from rametd.services.ownership.transfers import log_owner
from rametd.services.plans.world import Checked, check_plan
from rametd.services.sessions import release
from rametd.services.trust.settings import for_repository
from rametd.store import Unit

CREATE, UPDATE, PROMPT, DROP, KEEP = "create", "update", "prompt", "drop", "keep"

_FIELDS = {
    "name": "name",
    "goal": "goal",
    "owns": "owns",
    "forbids": "forbids",
    "merge_order": "merge_order",
    "after": "after",
    "model": "model",
    "mode": "mode",
    "budget_usd": "budget",
    "check": "check",
    "title": "title",
}
"""Fields of a thread that can change while its session exists, with their keys in the plan."""
_FIXED = ("branch", "base", "agent")


@dataclass(frozen=True, slots=True)
class Change:
    """As the contract's `PlanChange`. ``fields``: changed fields of the row."""

    action: str
    thread: str
    message: str
    session_id: str = ""
    fields: tuple[str, ...] = ()


def planned_rows(checked: Checked, plan_id: str) -> list[PlanThread]:
    """New rows of the threads, in the order of landing, with their existing sessions."""
    rows = []
    for thread in checked.threads:
        text, before, session = thread.text, checked.known.get(thread.id), checked.sessions.get(thread.id)
        rows.append(
            PlanThread(
                plan_id=plan_id,
                id=thread.id,
                position=thread.position,
                session_id=session.id if session is not None else before.session_id if before is not None else "",
                name=thread.name,
                branch=thread.branch,
                goal=text.goal,
                prompt=checked.prompts[thread.id],
                base=text.base,
                owns=text.owns,
                forbids=text.forbids,
                merge_order=thread.merge_order,
                model=text.model,
                mode=str(text.mode or ""),
                agent=text.agent,
                budget_usd=text.budget,
                after=text.after,
                check=text.check,
                title=text.title,
                ended=before.ended if before is not None and session is None else "",
            )
        )
    return rows


def compare(
    known: Mapping[str, PlanThread], sessions: Mapping[str, Session], wanted: Sequence[PlanThread]
) -> list[Change]:
    """One or more changes for each thread, in the order of landing, then for threads that the plan
    no longer has.

    Raises `WrongStateError` for a change that an existing session does not allow.
    """
    changes: list[Change] = []
    for row in wanted:
        before, session = known.get(row.id), sessions.get(row.id)
        if row.ended:
            changes.append(Change(KEEP, row.id, f"it has landed: {row.ended}"))
        elif before is None or session is None:
            branch = f" on {row.branch}" if row.branch else ""
            again = "a new session, since its session is gone" if before is not None else "a new session"
            waits = f", after {', '.join(row.after)}" if row.after else ""
            changes.append(Change(CREATE, row.id, f"{again}: {row.name}{branch}{waits}"))
        else:
            changes += _of_one(before, row, session)
    ids = {row.id for row in wanted}
    for name, before in known.items():
        if name not in ids and not before.dropped:
            session = sessions.get(name)
            left = (
                f"its session {session.name} stays: `rametctl rm {session.reference}`"
                if session
                else "its row is deleted"
            )
            changes.append(Change(DROP, name, f"the plan no longer has it; {left}", session.id if session else ""))
    return changes


def _of_one(before: PlanThread, row: PlanThread, session: Session) -> list[Change]:
    fixed = [name for name in _FIXED if getattr(before, name) != getattr(row, name)]
    if fixed:
        old = getattr(before, fixed[0]) or "the default"
        raise WrongStateError(
            f"thread {row.id} was created with the {fixed[0]} {old}, which cannot be changed",
            hint=f"keep it, or `rametctl rm {session.reference}` and apply again, or give the new work another id",
        )
    fields = tuple(name for name in _FIELDS if getattr(before, name) != getattr(row, name))
    changes = []
    if fields or before.dropped:
        words = ", ".join(f"{_FIELDS[name]} {_shown(before, row, name)}" for name in fields)
        back = "is back in the plan" if before.dropped else ""
        changes.append(Change(UPDATE, row.id, "; ".join(filter(None, (back, words))), session.id, fields))
    if before.prompt != row.prompt and row.prompt:
        changes.append(Change(PROMPT, row.id, "it gets the new task as a prompt", session.id))
    return changes or [Change(KEEP, row.id, "nothing changes", session.id)]


def _shown(before: PlanThread, row: PlanThread, name: str) -> str:
    old, new = getattr(before, name), getattr(row, name)
    if isinstance(new, tuple):
        taken, given = [each for each in old if each not in new], [each for each in new if each not in old]
        words = [f"+{each}" for each in given] + [f"-{each}" for each in taken]
        return " ".join(words)[:200] or "order changed"
    if name in {"goal", "title"}:
        return "(text changed)"
    return f"{old if old not in ('', None) else 'default'} → {new if new not in ('', None) else 'default'}"


def with_session(row: PlanThread, session: Session) -> PlanThread:
    """The row of a thread with its new session, whose creation may have chosen the branch."""
    return replace(row, session_id=session.id, branch=session.branch)


_STARTING_STATES = frozenset({State.QUEUED, State.STARTING})


class Commit:
    """The unit of work of an application: rows, changes of existing sessions, and prompts about
    them."""

    def __init__(
        self,
        core: Core,
        checked: Checked,
        rows: Sequence[PlanThread],
        changes: Sequence[Change],
        *,
        plan_id: str,
        file: str,
        principal: str,
        default_mode: Mode,
    ) -> None:
        self._core = core
        self._checked = checked
        self._rows = rows
        self.changes = list(changes)
        self._plan_id = plan_id
        self._file = file
        self._principal = principal
        self._default_mode = default_mode
        self.touched: list[str] = []
        self._briefings: dict[str, str] = {}  # by session: the briefing that its agent has

    def hand_over(self, unit: Unit) -> None:
        """Change the paths of existing sessions, before `run`. Raises `ChangedError` if one was
        removed meanwhile, `PathsOwnedError`."""
        for name, session in self._checked.sessions.items():
            if unit.sessions.find(session.id) is None:
                raise ChangedError(f"the session of thread {name} was removed meanwhile", hint="apply the plan again")
        sessions = [unit.sessions.get(session.id) for session in self._checked.sessions.values()]
        self._briefings = {session.id: briefing.briefing(unit, session) for session in sessions}
        changed = [row for row in self._rows if any("owns" in change.fields for change in self._changes_of(row))]
        for row in changed:
            log_owner(
                unit,
                unit.sessions.update(row.session_id, owns=row.owns),
                "",
                row.session_id,
                row.owns,
                self._principal,
            )
        bases = {thread.id: thread.base for thread in self._checked.plan.threads}
        for row in changed:
            repo_id = unit.sessions.get(row.session_id).repo_id
            tree = self._checked.trees.get(bases.get(row.id, ""))
            check_claims(unit, repo_id, row.owns, row.forbids, parent=None, session_id=row.session_id, tree=tree)

    def run(self, unit: Unit, made: Sequence[Session]) -> list[str]:
        """Store everything else; return the ids of the plan's sessions."""
        repo_id = made[0].repo_id if made else self._repo().id
        by_thread = {session.thread: session for session in made}
        rows = [with_session(row, by_thread[row.id]) if row.id in by_thread else row for row in self._rows]
        plan = self._put_plan(unit, repo_id)
        for row in rows:
            unit.plans.put_thread(row)
        for change in self.changes:
            if change.action == DROP:
                self._drop(unit, change)
        session_ids = {row.id: row.session_id for row in rows}
        for row in rows:
            self._update(unit, row, session_ids)
        prompted = [row for row in rows if any(each.action == PROMPT for each in self._changes_of(row))]
        self._send_briefings(unit, self._briefings, {row.session_id for row in prompted})
        for row in prompted:
            self._give_prompt(unit, row)
        self.changes = [
            replace(change, session_id=by_thread[change.thread].id) if change.thread in by_thread else change
            for change in self.changes
        ]
        applied = [
            plan_pb2.PlanChange(
                action=each.action, thread=each.thread, message=each.message, session_id=each.session_id
            )
            for each in self.changes
            if each.action != KEEP
        ]
        payload = event_pb2.PlanApplied(plan_id=plan.id, name=plan.name, changes=applied)
        unit.events.append(events.make(payload, repo_id=repo_id, principal=self._principal))
        return [row.session_id for row in rows if not row.ended]

    def _repo(self) -> Repo:
        assert self._checked.repo is not None, "a plan without a new session was applied before"
        return self._checked.repo

    def _put_plan(self, unit: Unit, repo_id: str) -> Plan:
        checked, text = self._checked, self._checked.plan
        taken = {plan.name for plan in unit.plans.list(repo_id) if plan.id != self._plan_id}
        name, number = checked.name, 2
        while name in taken:
            name, number = f"{checked.name}-{number}", number + 1
        return unit.plans.put(
            Plan(
                id=self._plan_id,
                repo_id=repo_id,
                name=name,
                file=self._file or (checked.stored.file if checked.stored is not None else ""),
                goal=text.goal,
                target=checked.target,
                remote=text.remote,
                chain=text.chain,
                draft=text.draft,
                create_time=checked.stored.create_time if checked.stored is not None else unit.now,
                update_time=unit.now,
            )
        )

    def _drop(self, unit: Unit, change: Change) -> None:
        if change.session_id:
            unit.plans.put_thread(replace(self._checked.known[change.thread], dropped=True))
        else:
            unit.plans.remove_thread(self._plan_id, change.thread)

    def _changes_of(self, row: PlanThread) -> list[Change]:
        return [change for change in self.changes if change.thread == row.id]

    def _update(self, unit: Unit, row: PlanThread, session_ids: Mapping[str, str]) -> None:
        """Update an existing session from its row."""
        for change in self._changes_of(row):
            if change.action == UPDATE and change.fields:
                self._set(unit, row, change.fields, session_ids)
            if change.action in {UPDATE, PROMPT}:
                self.touched.append(row.session_id)

    def _set(self, unit: Unit, row: PlanThread, fields: tuple[str, ...], session_ids: Mapping[str, str]) -> None:
        principal = self._principal
        columns: dict[str, Any] = {
            name: getattr(row, name) for name in ("name", "owns", "forbids", "model", "budget_usd") if name in fields
        }
        if "mode" in fields:
            columns["mode"] = Mode(row.mode) if row.mode else self._default_mode
        if "after" in fields:
            columns["after"] = tuple(session_ids[name] for name in row.after)
        if "budget_usd" in fields:
            columns["budget_warned"] = False
        if columns:
            session = unit.sessions.update(row.session_id, **columns)
            log_update(unit, session, sorted(columns.keys() - {"budget_warned"}), principal)
            if "budget_usd" in columns:
                release(unit, session, self._core.config.budget, principal)

    def _give_prompt(self, unit: Unit, row: PlanThread) -> None:
        """Replace the old prompt if the agent has not received it, else send the new one."""
        principal = self._principal
        session = unit.sessions.get(row.session_id)
        old = self._checked.known[row.id].prompt
        for prompt in unit.prompts.queued(session.id):
            if (prompt.text, prompt.source) == (old, principal):
                withdraw(unit, session, prompt, principal)
                add_prompt(unit, session, row.prompt, principal)
                return
        post(unit, self._core.kind(session.agent), session, row.prompt, principal)

    def _send_briefings(self, unit: Unit, briefings: Mapping[str, str], prompted: Collection[str]) -> None:
        """Send running agents a changed briefing, before their next prompt if there is one.
        ``briefings``: the briefings that they have.

        Do not wake an idle agent for it: that would cost a turn.
        """
        for session_id, before in briefings.items():
            session = unit.sessions.get(session_id)
            now = briefing.briefing(unit, session)
            if now == before or not session.generation:
                continue
            if session.state in TURN_STATES and has_agent(unit, session):
                post(unit, self._core.kind(session.agent), session, briefing.changed(now), DAEMON)
                self.touched.append(session_id)
            elif session.state in _STARTING_STATES or session_id in prompted:
                add_prompt(unit, session, briefing.changed(now), DAEMON)


Remember = Callable[[Unit, "Applied"], None]


@dataclass(frozen=True, slots=True)
class Applied:
    """Result of an application, or of a dry run."""

    plan_id: str
    changes: Sequence[Change]
    session_ids: Sequence[str] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Application:
    """A plan to apply. ``file`` is absolute, "" for standard input."""

    path: Path
    text: str
    file: str
    principal: str
    environment: Variables = field(default_factory=Variables, repr=False)


class Plans:
    def __init__(self, core: Core, creator: Creator) -> None:
        self._core = core
        self._creator = creator
        self._locks: dict[Path, asyncio.Lock] = {}  # by repository: one application at a time

    async def check(self, path: Path, text: str, file: str, *, by_session: bool = False) -> Checked:
        return await check_plan(self._core, path, text, file, by_session=by_session)

    async def apply(self, application: Application, remember: Remember, *, dry_run: bool = False) -> Applied:
        """Apply a plan. Raises `BadPlanError` with the first problem, `WrongStateError` for a
        change that is no longer possible."""
        info = await self._core.git.discover(application.path)
        async with self._locks.setdefault(info.common_dir, asyncio.Lock()):
            checked = await check_plan(self._core, application.path, application.text, application.file)
            if checked.errors:
                raise bad_plan(checked)
            plan_id = checked.stored.id if checked.stored is not None else new_id()
            rows = planned_rows(checked, plan_id)
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
        if news:  # existing threads give up paths before new ones get them
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
            more = dict.fromkeys(warning for each in created for warning in each.warnings)
            applied = replace(applied, warnings=(*applied.warnings, *more))
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
