"""Converge a plan: push its branches and open a pull request for each, in the order of landing.
Another run changes only what differs.

The failure of one thread is reported, and does not stop the others. Results are in the rows and on
the remote, so that the next run finishes a killed one.
"""

from dataclasses import dataclass

from rametd.domain.errors import RametError
from rametd.domain.models import Session
from rametd.domain.plans import Plan, PlanThread
from rametd.domain.pull_requests import OPEN_STATES, PullRequest, PullState
from rametd.git import RepositoryInfo
from rametd.services.core import Core
from rametd.services.plans.status import landed_of
from rametd.services.pull_requests.requests import PullRequests, PullRequestValues
from rametd.services.repos import info_of

TITLE_LIMIT = 200
FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Step:
    """As the contract's `ConvergeStep`."""

    thread: str
    branch: str
    base: str
    action: str
    message: str
    title: str = ""
    pull_request: int = 0
    url: str = ""


class Converger:
    def __init__(self, core: Core, pulls: PullRequests) -> None:
        self._core = core
        self._pulls = pulls

    async def converge(self, plan: Plan, principal: str, *, remote: str, dry_run: bool) -> list[Step]:
        """Steps by thread, in the order of landing."""
        core = self._core
        repo, threads = await core.store.read(
            lambda reader: (reader.repos.get(plan.repo_id), reader.plans.threads(plan.id))
        )
        info = await info_of(core, repo)
        threads = tuple(thread for thread in threads if not thread.dropped)
        open_branches: dict[str, str] = {}  # by thread: branches on which a later one may be based
        steps = []
        for thread in threads:
            base = base_of(plan, thread, open_branches)
            title = title_of(plan, thread, len(threads))
            try:
                step = await self._one(plan, info, thread, base, title, principal, remote or plan.remote, dry_run)
            except RametError as error:
                hint = f"; {error.hint}" if error.hint else ""
                step = Step(thread.id, thread.branch, base, FAILED, f"{error.message}{hint}", title)
            if step.action not in {"landed", "skipped", FAILED} or (
                step.action == FAILED and await self._is_open(thread)
            ):
                open_branches[thread.id] = thread.branch
            steps.append(step)
            core.failpoint.hit("converge.step")
        return steps

    async def _is_open(self, thread: PlanThread) -> bool:
        """Whether the thread has a known open pull request. The next one then stays based on its
        branch, even if updating it failed."""
        pull = await self._core.store.read(lambda reader: reader.pull_requests.find(thread.session_id))
        return pull is not None and pull.number > 0 and pull.state in OPEN_STATES

    async def _one(
        self,
        plan: Plan,
        info: RepositoryInfo,
        thread: PlanThread,
        base: str,
        title: str,
        principal: str,
        remote: str,
        dry_run: bool,
    ) -> Step:
        core = self._core
        session, pull = await core.store.read(
            lambda reader: (reader.sessions.find(thread.session_id), reader.pull_requests.find(thread.session_id))
        )
        number, url = (pull.number, pull.url) if pull is not None else (0, "")
        if session is None:
            action, why = ("landed", thread.ended) if thread.ended else ("skipped", "its session is gone")
            return Step(thread.id, thread.branch, base, action, why, title, number, url)
        if pull is not None and pull.number and not dry_run:
            # If it was merged since the last refresh, do not open another one.
            pull = await self._pulls.refresh(session.id)
        landed = await landed_of(core, info, plan, session)
        if landed:
            return Step(thread.id, session.branch, base, "landed", landed.reason, title, number, url)
        if pull is not None and pull.number and pull.state == PullState.MERGED:
            why = f"pull request #{number} is merged; later commits need another thread"
            return Step(thread.id, session.branch, base, "skipped", why, title, number, url)
        ahead, _ = await core.git.branches.ahead_behind(info, session.branch, plan.target)
        if not ahead:
            return Step(thread.id, session.branch, base, "skipped", "it has no commit yet", title, number, url)
        if dry_run:
            await self._pulls.check_publishable(session)
            return await self._preview(plan, info, session, thread, pull, base, title)
        pushed = await self._pulls.push(session, remote, principal)
        core.failpoint.hit("converge.pushed")
        values = PullRequestValues(
            title=title,
            base=base,
            draft=None if plan.draft is None or (pull is not None and pull.number) else bool(plan.draft),
            remote=remote,
        )
        opened = await self._pulls.open_or_update(session, values, principal)
        action = "pushed" if opened.action == "unchanged" and pushed.changed else opened.action
        if action == "pushed" and not opened.pull_request.number and not pushed.changed:
            action = "unchanged"
        action = "updated" if action == "adopted" else action
        done = opened.pull_request
        message = "; ".join((*_words(action, done, pushed.changed), *pushed.warnings, *opened.warnings))
        return Step(thread.id, session.branch, base, action, message, title, done.number, done.url)

    async def _preview(
        self,
        plan: Plan,
        info: RepositoryInfo,
        session: Session,
        thread: PlanThread,
        pull: PullRequest | None,
        base: str,
        title: str,
    ) -> Step:
        """Return the step that a run would take, as far as it is known without a network."""
        tip = await self._core.git.branches.tip(info, session.branch)
        if pull is None or not pull.number or pull.state not in OPEN_STATES:
            draft = ", as a draft" if plan.draft else ""
            return Step(
                thread.id, session.branch, base, "opened", f"would be pushed and opened against {base}{draft}", title
            )
        differs = [
            words
            for words, same in (
                (f"pushed at {(tip or '')[:10]}", tip == pull.commit),
                (f"moved onto {base}", base == pull.base),
                ("given its title", title == pull.title),
            )
            if not same
        ]
        action = "updated" if differs else "unchanged"
        message = f"would be {', '.join(differs)}" if differs else "nothing differs"
        return Step(thread.id, session.branch, base, action, message, title, pull.number, pull.url)


def base_of(plan: Plan, thread: PlanThread, before: dict[str, str]) -> str:
    """Base of a thread's pull request: the branch of the last open thread that it follows or is
    chained to, else the target.

    ``before``: branches of earlier open threads, in the order of landing.
    """
    chained = [branch for name, branch in before.items() if plan.chain or name in thread.after]
    return chained[-1] if chained else plan.target


def title_of(plan: Plan, thread: PlanThread, total: int) -> str:
    """Title of a thread's pull request on one line; by default the goal."""
    goal = next((line.strip() for line in thread.goal.splitlines() if line.strip()), "") or thread.name
    words = {
        "plan": plan.name,
        "id": thread.id,
        "name": thread.name,
        "branch": thread.branch,
        "goal": goal,
        "position": thread.position,
        "total": total,
    }
    text = " ".join((thread.title or "{goal}").format_map(words).split())
    return text if len(text) <= TITLE_LIMIT else f"{text[: TITLE_LIMIT - 1].rstrip()}…"


def _words(action: str, pull: PullRequest, changed: bool) -> list[str]:
    pushed = f"pushed to {pull.remote}"
    match action:
        case "opened":
            return [f"{pushed} and opened as #{pull.number}"]
        case "updated":
            return [f"#{pull.number} updated" + (f", {pushed}" if changed else "")]
        case "pushed":
            if pull.number or not pull.url.startswith("http"):
                return [pushed]
            return [f"{pushed}; open a pull request at {pull.url}"]
    return ["nothing differs"]
