"""Whether a session's work is on its target branch: one answer for `ls`, gc, plans and queues."""

import asyncio
from collections.abc import Sequence

import structlog

from rametd.domain.errors import RametError
from rametd.domain.models import DAEMON, Session
from rametd.domain.states import BUSY_STATES
from rametd.git import Landed, RepositoryInfo, Risk, Target
from rametd.services.core import Core
from rametd.services.lifecycle import close_reviews, log_update
from rametd.services.repos import info_of
from rametd.store import Unit

log = structlog.get_logger()

GATHER_S = 0.5
"""Delay of a survey after `ask`: calls are answered first, and several calls share one survey."""
REST_S = 2.0


async def landed(
    core: Core, session: Session, *, pull_request_state: str | None = None, risk: Risk | None = None
) -> Landed:
    """Whether a session's branch has landed and its worktree has no other work.

    ``pull_request_state``: "merged" if a pull request with the branch's tip as head was merged.
    ``risk``: the work in its worktree, if the caller has looked. Raises what git raises.
    """
    info = await info_of(core, session)
    tip = await core.git.branches.tip(info, session.branch)
    if tip is None:
        return Landed(False, f"branch {session.branch} is gone")
    targets = await core.git.landing.targets_of(info, session.base_ref, session.branch)
    return await judge(core, session, info, tip, targets, pull_request_state=pull_request_state, risk=risk)


async def judge(
    core: Core,
    session: Session,
    info: RepositoryInfo,
    tip: str,
    targets: Sequence[Target],
    *,
    pull_request_state: str | None = None,
    background: bool = False,
    risk: Risk | None = None,
) -> Landed:
    """`landed` for callers that know the commits."""
    if tip == session.start_commit:
        return Landed(False, "it has no commits of its own since the fork")
    answer = await core.git.landing.landed(
        info, tip, session.base_commit, targets, pull_request_state=pull_request_state, background=background
    )
    if not answer:
        return answer
    if risk is None:
        risk = await core.git.worktrees.work_at_risk(info, session.worktree, session.branch, session.base_commit)
    if risk.uncommitted or risk.untracked:
        count = len(risk.uncommitted) + len(risk.untracked)
        return Landed(False, f"its commits are {answer.reason}, but {count} changed files are not committed")
    if (
        risk.starts
        and risk.starts[-1] != tip
        and not await core.git.landing.landed(
            info, risk.starts[-1], session.base_commit, targets, background=background
        )
    ):
        return Landed(False, f"its branch is {answer.reason}, but the commit that it has checked out is not")
    return answer


class LandedTracker:
    """Updates `Session.landed_reason`. A reader calls `ask`, and the next reader gets the result.

    A session is judged again only if a commit moved, or the session has new events.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self._asked = asyncio.Event()
        self._seen: dict[str, tuple[str, tuple[Target, ...], int]] = {}

    def ask(self) -> None:
        self._asked.set()

    async def after_turn(self, session: Session) -> None:
        self.ask()

    async def run(self) -> None:
        while True:
            await self._asked.wait()
            await asyncio.sleep(GATHER_S)
            self._asked.clear()
            await self.survey()
            await asyncio.sleep(REST_S)

    async def survey(self) -> None:
        """Judge all sessions, and store changed answers."""
        core = self._core
        for repo in await core.store.read(lambda reader: reader.repos.list()):
            repo_id = repo.id
            sessions = await core.store.read(lambda reader, each=repo_id: reader.sessions.list(repo_id=each))  # type: ignore[misc]
            if not sessions:
                continue
            try:
                info = await info_of(core, repo)
                await self._survey(info, sessions)
            except RametError as error:
                log.debug("landed unknown", repo=repo.name, error=error.message)

    async def _survey(self, info: RepositoryInfo, sessions: Sequence[Session]) -> None:
        tips = {branch.name: branch.commit for branch in await self._core.git.branches.list(info)}
        targets: dict[tuple[str, str], tuple[Target, ...]] = {}
        changed: dict[str, str] = {}
        for session in sessions:
            tip = tips.get(session.branch)
            if tip is None or tip in {session.base_commit, session.start_commit} or session.state in BUSY_STATES:
                answer = ""
            else:
                # Only a session that works on its own target has others.
                key = (session.base_ref, session.branch if session.branch == session.base_ref else "")
                if key not in targets:
                    targets[key] = await self._core.git.landing.targets_of(info, *key)
                seen = (tip, targets[key], session.last_seq)
                if self._seen.get(session.id) == seen:
                    continue
                found = await judge(self._core, session, info, tip, targets[key], background=True)
                self._seen[session.id] = seen
                answer = found.reason if found else ""
            if answer != session.landed_reason:
                changed[session.id] = answer
        if changed:
            await self._core.store.write(lambda unit: _store(unit, changed), lifecycle=False)


def _store(unit: Unit, changed: dict[str, str]) -> None:
    for session_id, reason in changed.items():
        session = unit.sessions.find(session_id)
        if session is not None and session.landed_reason != reason:
            session = unit.sessions.update(session_id, landed_reason=reason)
            log_update(unit, session, ["landed_reason"], DAEMON)
            if reason:
                close_reviews(unit, session)
