"""Status of the threads of an applied plan: commits, paths, landing."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

from rametd.domain.errors import RametError, RefNotFoundError
from rametd.domain.models import Session
from rametd.domain.plans import Plan, PlanThread
from rametd.domain.pull_requests import PullState
from rametd.domain.states import State
from rametd.git import Landed, RepositoryInfo
from rametd.ownership import Patterns
from rametd.services.core import Core
from rametd.services.landing.landed import judge
from rametd.services.repos import info_of
from rametd.store import Reader

AT_ONCE = 4
"""Threads whose worktrees are read at once."""


@dataclass(frozen=True, slots=True)
class ThreadStatus:
    """As the contract's message. ``session``: None if it is gone."""

    thread: PlanThread
    session: Session | None
    ahead: int = 0
    behind: int = 0
    dirty: tuple[str, ...] = ()
    inside: tuple[str, ...] = ()
    outside: tuple[str, ...] = ()
    landed: bool = False
    landed_reason: str = ""
    landing: str = ""


async def plan_status(core: Core, plan: Plan) -> list[ThreadStatus]:
    """Status of all threads, in the order of landing; dropped ones last."""
    repo, threads = await core.store.read(
        lambda reader: (reader.repos.get(plan.repo_id), reader.plans.threads(plan.id))
    )
    info = await info_of(core, repo)
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(thread: PlanThread) -> ThreadStatus:
        async with slots:
            return await thread_status(core, info, plan, thread)

    return list(await asyncio.gather(*(one(thread) for thread in threads)))


async def thread_status(core: Core, info: RepositoryInfo, plan: Plan, thread: PlanThread) -> ThreadStatus:
    session, line = await core.store.read(
        lambda reader: (reader.sessions.find(thread.session_id), landing_line(reader, thread))
    )
    if session is None:
        reason = thread.ended or "its session is gone"
        return ThreadStatus(thread, None, landed=bool(thread.ended), landed_reason=reason, landing=line)
    try:
        ahead, behind = await core.git.branches.ahead_behind(info, session.branch, plan.target)
    except RefNotFoundError as error:  # of its branch or of the target; landed_reason has the rest
        ahead, behind, line = 0, 0, line or error.message
    touched, dirty = await _touched(core, info, plan, session)
    owned = Patterns.parse(session.owns)
    forbidden = Patterns.parse(session.forbids)
    inside = tuple(path for path in touched if (not owned or owned.matches(path)) and not forbidden.matches(path))
    landed = await landed_of(core, info, plan, session)
    return ThreadStatus(
        thread,
        session,
        ahead,
        behind,
        dirty,
        inside,
        tuple(path for path in touched if path not in set(inside)),
        landed.yes,
        landed.reason,
        line,
    )


async def _touched(
    core: Core, info: RepositoryInfo, plan: Plan, session: Session
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Paths that the session changed, and uncommitted ones.

    Exclude merged work of others: a path must differ from the session's base, from the merge base
    with the target, and from the target itself.
    """
    if session.state == State.ARCHIVED or not await asyncio.to_thread(session.worktree.exists):
        tip = await core.git.branches.tip(info, session.branch)
        if tip is None:
            return (), ()
        diffs = [
            await core.git.diffs.between(info, old, tip, patch=False)
            for old in await _origins(core, info, plan, session)
        ]
        return _intersection([change.path for change in diff.files] for diff in diffs), ()
    try:
        return (
            _intersection(
                [
                    await core.git.diffs.changed_files(session.worktree, old)
                    for old in await _origins(core, info, plan, session)
                ]
            ),
            await core.git.diffs.changed_files(session.worktree, "HEAD"),
        )
    except RametError:  # the worktree was replaced: `doctor` reports it
        return (), ()


async def _origins(core: Core, info: RepositoryInfo, plan: Plan, session: Session) -> list[str]:
    """Commits with which to compare the session's files."""
    try:
        met = await core.git.commits.merge_base(info, session.branch, plan.target)
    except RefNotFoundError:  # the target or the branch is gone
        return [session.base_commit]
    tip = await core.git.branches.tip(info, plan.target)
    return list(dict.fromkeys(filter(None, (session.base_commit, met, tip))))


def _intersection(lists: Iterable[Iterable[str]]) -> tuple[str, ...]:
    return tuple(sorted(set.intersection(*map(set, lists))))


async def landed_of(core: Core, info: RepositoryInfo, plan: Plan, session: Session) -> Landed:
    """Whether all work of a session is on the plan's target. Uncommitted work never is."""
    tip = await core.git.branches.tip(info, session.branch)
    if tip is None:
        return Landed(False, f"branch {session.branch} is gone")
    targets = await core.git.landing.targets_of(info, plan.target, session.branch)
    pull = await core.store.read(lambda reader: reader.pull_requests.find(session.id))
    merged = pull is not None and pull.state == PullState.MERGED and pull.head_commit == tip
    return await judge(core, session, info, tip, targets, pull_request_state="merged" if merged else None)


def landing_line(reader: Reader, thread: PlanThread) -> str:
    """State in the merge queue and of the pull request, in one line."""
    parts = ["dropped from the plan"] if thread.dropped else []
    entry = next((each for each in reader.landings.open() if each.session_id == thread.session_id), None)
    if entry is not None:
        parts.append(f"queue: {entry.state}" + (f", {entry.reason}" if entry.reason else ""))
    pull = reader.pull_requests.find(thread.session_id)
    if pull is not None and pull.number:
        checks = f", checks {pull.checks}" if pull.checks and pull.state != PullState.MERGED else ""
        parts.append(f"pull request #{pull.number} {pull.state}{checks}")
    elif pull is not None:
        parts.append(f"pushed to {pull.remote}")
    return "; ".join(parts)
