"""Create entries of merge queues from a person's request, after checking session, worktree and
target."""

import asyncio
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from rametd.config import Config
from rametd.domain.errors import InvalidInputError, ProtectedBranchError, RefNotFoundError, WrongStateError
from rametd.domain.landing import Landing, LandingState
from rametd.domain.models import Repo, Session, WorktreeKind
from rametd.domain.states import BUSY_STATES, State
from rametd.git import Landed, RepositoryInfo, Target
from rametd.services import environments
from rametd.services.core import Core
from rametd.services.ids import new_id
from rametd.services.repos import info_of
from rametd.services.trust.plan_checks import trusted_check
from rametd.services.trust.refusals import hooks_trusted, hooks_withheld
from rametd.services.trust.settings import for_repository
from rametd.services.worktrees.checkpoints import Checkpointer

METHODS = ("merge", "rebase", "squash")


@dataclass(frozen=True, slots=True)
class NewLandings:
    """A person's request to land; empty values mean the configured ones."""

    sessions: Sequence[str]
    principal: str
    target: str = ""
    method: str = ""
    checks: tuple[str, ...] = ()
    commit_message: str = ""  # commit uncommitted work first
    local: bool = False  # allow a target with an upstream
    repo_id: str | None = None  # the repository for ambiguous names


@dataclass(frozen=True, slots=True)
class Draft:
    """An entry that is not stored yet, and warnings."""

    landing: Landing
    warnings: tuple[str, ...]


async def draft_entry(core: Core, checkpointer: Checkpointer, session: Session, new: NewLandings) -> Draft:
    """Create the entry of a session; commit its work if the request says so.

    Raises RefNotFoundError, ProtectedBranchError, InvalidInputError, WrongStateError.
    """
    repo, thread, plan = await core.store.read(
        lambda reader: (
            reader.repos.get(session.repo_id),
            reader.plans.thread_of(session.id),
            reader.plans.get(session.plan_id) if session.plan_id else None,
        )
    )
    info = await info_of(core, repo)
    config = await for_repository(core, repo, info)
    target = new.target or (plan.target if plan is not None else "") or session.base_ref
    await check_target(core, info, config, session, target)
    warnings = await check_work(core, checkpointer, repo, info, session, target, new.commit_message)
    if not new.local:  # last: ask about the target only if there is work to land
        await check_upstream(core, info, config, session, target)
    now = core.clock()
    landing = Landing(
        id=new_id(),
        repo_id=repo.id,
        session_id=session.id,
        session_name=session.name,
        branch=session.branch,
        target=target,
        method=new.method or config.land.method,
        checks=new.checks or await trusted_check(core, repo, plan, thread) or config.land.check,
        state=LandingState.QUEUED,
        reason="",
        merge_order=thread.merge_order if thread is not None else 0,
        position=0,
        after=session.after,
        returns=0,
        commit="",
        old_target="",
        new_target="",
        check_command_id="",
        batch=(),
        principal=new.principal,
        create_time=now,
        update_time=now,
    )
    return Draft(landing, warnings)


async def check_target(core: Core, info: RepositoryInfo, config: Config, session: Session, target: str) -> None:
    git = core.git
    if target == session.branch:
        raise InvalidInputError(
            f"{session.name} works on {target} itself", hint="name the branch to land on with --target"
        )
    if await git.branches.tip(info, target) is None:
        raise RefNotFoundError(
            f"{target} is not a local branch, so {session.name} cannot land on it",
            hint=f"name one with --target, or `rametctl pr create {session.reference}`",
        )
    if "land.protected" in config.origins and any(fnmatchcase(target, glob) for glob in config.land.protected):
        raise ProtectedBranchError(
            f"{target} is protected by land.protected",
            hint=f"`rametctl pr create {session.reference}`, or change the setting: rametctl config set land.protected '[]'",
            branch=target,
        )


async def check_upstream(core: Core, info: RepositoryInfo, config: Config, session: Session, target: str) -> None:
    if "land.protected" not in config.origins and await core.git.landing.targets.has_upstream(info, target):
        raise ProtectedBranchError(
            f"{target} has an upstream",
            hint=f"`rametctl pr create {session.reference}`, or land on your local {target} with --local; nothing is pushed",
            branch=target,
            upstream="true",
        )


async def check_work(
    core: Core,
    checkpointer: Checkpointer,
    repo: Repo,
    info: RepositoryInfo,
    session: Session,
    target: str,
    message: str,
) -> tuple[str, ...]:
    """Commit uncommitted work if ``message`` is given; return warnings.

    Raises `WrongStateError` if there is nothing to land, or work that would not land.
    """
    git = core.git
    tip, onto = await git.branches.tip(info, session.branch), await git.branches.tip(info, target)
    if tip is None:
        raise RefNotFoundError(
            f"the branch {session.branch} of {session.name} is gone", hint="create it again with `git branch`"
        )
    if session.state in BUSY_STATES | {State.QUEUED, State.LOST}:
        return ()  # the queue waits for it
    warnings: tuple[str, ...] = ()
    if await asyncio.to_thread(session.worktree.is_dir):
        await core.git.landing.check_nothing_under_way(session.worktree, "land again")
        await _check_head(core, info, session)
        async with checkpointer.still(session.id):
            tip, warnings = await _committed(core, repo, info, session, tip, message)
    there = Landed(False, "")
    if onto is not None:
        there = await git.landing.landed(info, tip, session.base_commit, (Target(target, onto),))
    if there:
        raise WrongStateError(
            f"{session.name} has landed already: {there.reason}",
            hint=f"nothing is left to do; `rametctl rm {session.reference}` removes it",
        )
    if await git.landing.targets.holds(info, target, tip):
        raise WrongStateError(
            f"{session.name} has nothing to land: {target} has all commits of {session.branch}",
            hint=f"`rametctl diff {session.reference}` shows its changes",
        )
    return warnings


async def _check_head(core: Core, info: RepositoryInfo, session: Session) -> None:
    """Raise `WrongStateError` if the worktree has commits checked out that the session's branch
    does not have."""
    head = await core.git.worktrees.head_commit(session.worktree)
    if head is None or not session.branch or await core.git.landing.targets.holds(info, session.branch, head):
        return
    tree, branch = shlex.quote(str(session.worktree)), shlex.quote(session.branch)
    raise WrongStateError(
        f"{session.name} has {head[:12]} checked out, which its branch {session.branch} does not have",
        hint=f"move the branch there: `git -C {tree} switch -C {branch}`, or leave it: `git -C {tree} switch {branch}`; then land again",
    )


async def _committed(
    core: Core, repo: Repo, info: RepositoryInfo, session: Session, tip: str, message: str
) -> tuple[str, tuple[str, ...]]:
    """Return the commit with all work of the worktree (``tip`` if nothing is uncommitted), and
    warnings."""
    dirty = await core.git.landing.uncommitted(session.worktree)
    if not dirty:
        return tip, ()
    if message and session.worktree_kind == WorktreeKind.IN_PLACE:
        raise WrongStateError(
            f"{session.name} works in your own checkout, where --commit does not work",
            hint=f"commit there yourself (`git -C {shlex.quote(str(session.worktree))} commit`), then land again",
            files="\n".join(dirty),
        )
    if not message:
        listed = ", ".join(dirty[:3]) + (f" and {len(dirty) - 3} more" if len(dirty) > 3 else "")
        raise WrongStateError(
            f"{session.name} has uncommitted work: {listed}",
            hint="commit it first: tell the agent to, or add --commit MESSAGE",
            files="\n".join(dirty),
        )
    environment = await environments.for_git(core, session.id)
    made = await core.git.landing.commit_all(
        *(info, session.worktree, session.branch, message),
        trusted=await hooks_trusted(core, repo, info, environment),
        environment=environment,
    )
    return made.commit, (*made.warnings, *([hooks_withheld(repo, made.skipped)] if made.skipped else []))
