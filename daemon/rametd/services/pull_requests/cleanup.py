"""Clean up after a merge: archive the session, delete its local branch and, on request, its remote
branch."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from rametd.domain.errors import RametError
from rametd.domain.models import DAEMON, Session
from rametd.domain.pull_requests import PullRequest, PullState
from rametd.domain.states import State
from rametd.git import RepositoryInfo
from rametd.services.core import Core
from rametd.services.environments import for_git
from rametd.services.landing.landed import landed
from rametd.services.lifecycle import log_update
from rametd.services.pull_requests.book import PullRequestBook
from rametd.services.repos import info_of
from rametd.store import Unit

AT_WORK = frozenset({State.STARTING, State.WORKING, State.WAITING})

Archive = Callable[[Session, str], Awaitable[tuple[str, ...]]]
"""Archives a session for a principal; returns warnings."""


@dataclass(frozen=True, slots=True)
class CleanedUp:
    """``reason``: the action, done or planned, or the reason why there is none. ``warnings``: those
    of archiving."""

    session: Session
    done: bool
    reason: str
    warnings: tuple[str, ...] = ()


class PullRequestCleaner:
    """Cleans up sessions. Each step checks the state first, so that a run after a kill does the
    rest."""

    def __init__(self, core: Core, pulls: PullRequestBook, archive: Archive) -> None:
        self._core = core
        self._pulls = pulls
        self._archive = archive

    async def clean(
        self, sessions: Sequence[Session], *, remote_branches: bool, dry_run: bool, principal: str
    ) -> list[CleanedUp]:
        """Return a result for each session that is not cleaned up yet. A failure of one does not
        stop the others."""
        found = []
        for session in sessions:
            try:
                outcome = await self._clean(session, remote_branches, dry_run, principal)
            except RametError as error:
                outcome = CleanedUp(session, False, error.message + (f"; {error.hint}" if error.hint else ""))
            if outcome is not None:
                found.append(outcome)
        return found

    async def _clean(self, session: Session, remote_branches: bool, dry_run: bool, principal: str) -> CleanedUp | None:
        core = self._core
        pull = await self._pulls.refresh(session.id)
        if pull.state != PullState.MERGED:
            words = "it has no known pull request" if not pull.number else f"its pull request is {pull.state}"
            return CleanedUp(session, False, words + (f" as of the last look: {pull.error}" if pull.error else ""))
        info = await info_of(core, session)
        tip = await core.git.branches.tip(info, session.branch)
        if (why := await self._why_not(session, pull, tip)) is not None:
            return CleanedUp(session, False, why)
        environment = await for_git(core, session.id, forge=True)
        there = await core.git.remotes.tip(info, pull.remote, pull.branch, environment) if remote_branches else ""
        if there and (based := await self._pulls.based_on(pull)):
            # GitHub closes a pull request for good when its base branch is deleted.
            number, base = based[0], pull.base or "BRANCH"
            reason = f"{pull.branch} on {pull.remote}: #{number} is based on it (`gh pr edit {number} --base {base}` moves it)"
            there = ""
        else:
            reason = ""
        steps = [] if session.state == State.ARCHIVED else ["archived"]
        steps += [f"branch {session.branch} deleted"] if tip is not None and session.created_branch else []
        steps += [f"{pull.branch} deleted on {pull.remote}"] if there else []
        if not steps:
            if not dry_run:  # an earlier run was killed after it deleted the branch
                await self._move_stacked(info, session)
            return CleanedUp(session, False, f"kept: {reason}") if reason else None
        if dry_run:
            but = f"; would be kept: {reason}" if reason else ""
            return CleanedUp(session, True, f"would be: {', '.join(steps)}{but}")
        reasons: list[str | None] = [reason or None]
        warnings: tuple[str, ...] = ()
        if session.state != State.ARCHIVED:
            warnings = await self._archive(session, principal)
            core.failpoint.hit("pr.archived")
        if tip is not None and session.created_branch:
            reasons.append(await core.git.branches.delete(info, session.branch, tip))
            core.failpoint.hit("pr.branch-deleted")
        await self._move_stacked(info, session)
        if there:
            reasons.append(
                await core.git.remotes.delete_branch(info, pull.remote, pull.branch, pull.head_commit, environment)
            )
        if reasons := [reason for reason in reasons if reason is not None]:
            return CleanedUp(session, False, f"archived, but kept: {'; '.join(reasons)}", warnings)
        return CleanedUp(session, True, ", ".join(steps), warnings)

    async def _why_not(self, session: Session, pull: PullRequest, tip: str | None) -> str | None:
        """Reason why cleaning up would lose or disturb work, else None. GitHub merged the branch as
        it was then: it does not have later commits."""
        if session.state in AT_WORK:
            return f"it is {session.state}: `rametctl stop {session.reference}` first"
        if session.state != State.ARCHIVED and (
            changed := await self._core.git.diffs.changed_files(session.worktree, "HEAD")
        ):
            return f"uncommitted: {', '.join(changed[:5])}{', …' if len(changed) > 5 else ''}"
        if tip is not None and tip != pull.head_commit and not await landed(self._core, session):
            return f"{session.branch} has commits that were not merged"
        return None

    async def _move_stacked(self, info: RepositoryInfo, merged: Session) -> None:
        """If a merged branch is gone, whoever deleted it, change the base of sessions that started
        from it to the branch's own base."""
        if await self._core.git.branches.tip(info, merged.branch) is None:
            await self._core.store.write(lambda unit: move_stacked(unit, merged))


def move_stacked(unit: Unit, merged: Session) -> None:
    """Change the base of sessions that started from a merged branch to the branch's own base:
    without the deleted branch they could not sync or land."""
    base = unit.sessions.get(merged.id).base_ref  # cleaning up the session below may have moved it
    for each in unit.sessions.list(repo_id=merged.repo_id, include_archived=True):
        if each.base_ref == merged.branch and each.id != merged.id:
            log_update(unit, unit.sessions.update(each.id, base_ref=base), ["base_ref"], DAEMON)
