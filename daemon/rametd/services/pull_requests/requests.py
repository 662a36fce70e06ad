"""Pull requests of sessions: push, open, update, link, refresh, and send reviews to the agent.

Pushing and opening change the remote and the database, so an operation with the pushed commit is
stored first. After a kill it shows that Ramet pushed a remote branch at that commit, and may
replace it later. Before it opens a pull request, Ramet searches for an open one of the branch, so
that a retry after a kill adopts that one.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ramet.words import plural

from rametd.domain.errors import (
    ForgeLoginError,
    ForgeRefusedError,
    PullRequestNotFoundError,
    WrongStateError,
)
from rametd.domain.models import Prompt, Session
from rametd.domain.operations import Caller, Kind
from rametd.domain.pull_requests import PullRequest
from rametd.domain.states import State
from rametd.git import Pushed
from rametd.services.delivery import post
from rametd.services.operations import new_operation
from rametd.services.pull_requests.body import describe, marked, updated
from rametd.services.pull_requests.book import PullRequestBook, first, operations_of, store
from rametd.services.pull_requests.feedback import Feedback, gather
from rametd.services.pull_requests.github import GitHub
from rametd.services.pull_requests.look import look, seen
from rametd.services.pull_requests.target import Target, base_branch, opening_address
from rametd.services.trust.refusals import hooks_trusted, hooks_withheld
from rametd.store import Unit

TO_DRAFT = "mutation($id: ID!) { convertPullRequestToDraft(input: {pullRequestId: $id}) { clientMutationId } }"
TO_READY = "mutation($id: ID!) { markPullRequestReadyForReview(input: {pullRequestId: $id}) { clientMutationId } }"


@dataclass(frozen=True, slots=True)
class Opened:
    """``action``: "opened", "adopted" (it existed), "updated", "unchanged", or "pushed" if Ramet
    cannot open one there."""

    pull_request: PullRequest
    action: str
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PullRequestValues:
    """Requested values of a pull request. An empty value or None means the default for a new one,
    and no change of an existing one."""

    title: str = ""
    body: str = ""
    base: str = ""
    draft: bool | None = None
    note: str = ""  # additional paragraph in our part of the body
    remote: str = ""


class PullRequests(PullRequestBook):
    """Operations on pull requests, one at a time per session."""

    # ── pushing and opening ───────────────────────────────────────────────────────────────────────

    async def create(self, session: Session, values: PullRequestValues, principal: str) -> Opened:
        """Push, then open a pull request or adopt the open one. Raises `WrongStateError` without
        commits, and the errors of the steps."""
        core = self._core
        if session.created_branch:
            target = await self._target(session, values.remote)
            tip = await self._tip(session, target)
            if (await core.git.branches.ahead_behind(target.info, tip, session.base_commit))[0] == 0:
                raise WrongStateError(f"{session.name} has no commit yet", hint="ask it to commit its work")
        warnings = await self._uncommitted(session)
        pushed = await self.push(session, values.remote, principal)
        opened = await self.open_or_update(session, values, principal)
        return replace(opened, warnings=warnings + pushed.warnings + opened.warnings)

    async def push(self, session: Session, remote: str, principal: str) -> Pushed:
        """Push the session's branch to a remote ("" for the usual one). Raises `WrongStateError` in
        the middle of a rebase or merge, `PushRefusedError`, `ForgeUnavailableError`,
        `RemoteNotFoundError`."""
        async with self.lock(session.id):
            return await self._push(session, await self._target(session, remote), principal)

    async def check_publishable(self, session: Session) -> None:
        """Raise `WrongStateError` in the middle of a rebase or the like in its worktree."""
        if session.state != State.ARCHIVED and await asyncio.to_thread(session.worktree.is_dir):
            await self._core.git.landing.check_nothing_under_way(session.worktree, "try again")

    async def _push(self, session: Session, target: Target, principal: str) -> Pushed:
        core = self._core
        await self.check_publishable(session)
        tip = await self._tip(session, target)
        repo = await core.store.read(lambda reader: reader.repos.get(session.repo_id))
        operation = new_operation(Kind.PULL_REQUEST, session.id, Caller(principal), commit=tip, remote=target.remote)

        ours: set[str] = set()

        def begin(unit: Unit) -> None:
            known = unit.pull_requests.find(session.id)
            ours.update(each.data["commit"] for each in operations_of(unit, session.id))
            ours.update({known.commit} if known else ())
            unit.operations.begin(operation)

        def done(unit: Unit) -> None:
            known = unit.pull_requests.find(session.id) or first(session, target)
            url = known.url
            if not known.number:
                address = self._address(target, session.branch, known.base, pushed.address)
                url = address if pushed.address or not url else url
            store(unit, replace(known, remote=target.remote, commit=tip, url=url), principal)
            for each in operations_of(unit, session.id):
                unit.operations.finish(each)

        async with core.operations.within(operation, begin):
            core.failpoint.hit("pr.intended")
            pushed = await core.git.remotes.push(
                *(target.info, target.remote, session.branch, tip),
                ours=frozenset(ours - {""}),
                environment=target.environment,
                base=session.base_commit,
                worktree=session.worktree,
                trusted=await hooks_trusted(core, repo, target.info, target.environment),
            )
            core.failpoint.hit("pr.pushed")
            await core.store.write(done)
        if pushed.skipped:
            pushed = replace(pushed, warnings=(*pushed.warnings, hooks_withheld(repo, pushed.skipped)))
        return pushed

    async def open_or_update(self, session: Session, values: PullRequestValues, principal: str) -> Opened:
        """Open a pull request for the pushed branch, or update the open one. Raises
        `ForgeRefusedError`, `ForgeUnavailableError`."""
        async with self.lock(session.id):
            target = await self._target(session, values.remote)
            pull = await self._core.store.read(lambda reader: reader.pull_requests.find(session.id))
            pull = pull or first(session, target)
            if target.github is None:
                return await self._pushed_only(session, target, pull, values, principal)
            pull = replace(pull, host=target.github.host, slug=target.slug)
            found = await self._open_one(target.github, target, session, pull)
            if found is None:
                opened = await self._open(session, target, target.github, pull, values, principal)
            else:
                opened = await self._update(session, target.github, pull, found, values, principal)
            self.changed()
            return opened

    async def _pushed_only(
        self, session: Session, target: Target, pull: PullRequest, values: PullRequestValues, principal: str
    ) -> Opened:
        base = await base_branch(self._core, session, target, values.base)
        printed = pull.url if pull.url.startswith("http") else ""
        url = self._address(target, session.branch, base, printed)
        pushed = replace(pull, base=base, url=url, title=values.title or pull.title)
        return Opened(await self._store(pushed, principal), "pushed")

    def _address(self, target: Target, branch: str, base: str, printed: str) -> str:
        return opening_address(target.place, branch=branch, base=base, printed=printed, remote=target.address)

    async def _open(
        self,
        session: Session,
        target: Target,
        github: GitHub,
        pull: PullRequest,
        values: PullRequestValues,
        principal: str,
    ) -> Opened:
        core = self._core
        made = await describe(core, session, values.note)
        draft = target.config.pr.draft if values.draft is None else values.draft
        payload: dict[str, Any] = {
            "title": values.title or made.title,
            "body": marked(values.body) if values.body else made.body,
            "head": target.head(session.branch) if target.upstream is not None else session.branch,
            "base": await base_branch(core, session, target, values.base),
            "draft": draft,
        }
        operation = new_operation(
            Kind.PULL_REQUEST, session.id, Caller(principal), commit=pull.commit, remote=target.remote
        )
        path = f"repos/{target.slug}/pulls"
        warnings: tuple[str, ...] = ()
        async with core.operations.within(operation, lambda unit: unit.operations.begin(operation)):
            core.failpoint.hit("pr.opening")
            try:
                created = await github.send("POST", path, payload)
            except ForgeRefusedError as error:
                if not draft or "draft" not in error.message.lower():
                    raise
                warnings = ("it is not a draft: the repository does not support drafts",)
                created = await github.send("POST", path, {**payload, "draft": False})
            core.failpoint.hit("pr.opened")
        opened = await self._look(github, replace(pull, number=created["number"]), principal)
        return Opened(opened, "opened", warnings)

    async def _update(
        self,
        session: Session,
        github: GitHub,
        pull: PullRequest,
        found: dict[str, Any],
        values: PullRequestValues,
        principal: str,
    ) -> Opened:
        """Update the values that differ, and Ramet's part of the body."""
        block = marked(values.body) if values.body else (await describe(self._core, session, values.note)).body
        body = found.get("body") or ""
        now = {"title": found["title"], "body": body, "base": found["base"]["ref"]}
        want = {
            "title": values.title or now["title"],
            "body": updated(body, block),
            "base": values.base or now["base"],
        }
        changes = {key: value for key, value in want.items() if value != now[key].replace("\r\n", "\n")}
        if changes:
            await github.send("PATCH", f"repos/{pull.slug}/pulls/{found['number']}", changes)
        redraft = values.draft is not None and values.draft != found.get("draft", False)
        if redraft:
            await github.query(TO_DRAFT if values.draft else TO_READY, id=found["node_id"])
        known = pull.number == found["number"]
        stored = await self._look(github, replace(pull, number=found["number"]), principal)
        action = "adopted" if not known else "updated" if changes or redraft else "unchanged"
        return Opened(stored, action)

    # ── linking ───────────────────────────────────────────────────────────────────────────────────

    async def link(self, session: Session, number: int, principal: str) -> PullRequest:
        """Assign a pull request to a session. Raises `PullRequestNotFoundError`,
        `ForgeLoginError`."""
        async with self.lock(session.id):
            target = await self._target(session, "")
            if target.github is None:
                raise _no_github(target.remote)
            known = await self._core.store.read(lambda reader: reader.pull_requests.find(session.id))
            pull = known or first(session, target)
            if pull.number != number:
                pull = replace(pull, sent=(), etags={})
            pull = replace(pull, host=target.github.host, slug=target.slug, number=number)
            linked = await self._look(target.github, pull, principal)
            self.changed()
            return linked

    # ── reviews and checks ────────────────────────────────────────────────────────────────────────

    async def fix(
        self, session: Session, principal: str, remember: Callable[[Unit, Feedback, Prompt | None], None]
    ) -> tuple[Feedback, Prompt | None]:
        """Send unsent comments and failed checks to the agent, if there are any. Raises
        `PullRequestNotFoundError`."""
        core = self._core
        async with self.lock(session.id):
            pull = await core.store.read(lambda reader: reader.pull_requests.get(session.id))
            if not pull.number:
                raise PullRequestNotFoundError(
                    f"{session.name} has no known pull request", hint="link one: `rametctl pr link`"
                )
            github = await self.github_of(pull)
            answer = await look(github, pull)
            pull = seen(pull, answer, core.clock())
            feedback = await gather(github, pull, answer)
            kind = core.kind(session.agent)

            def work(unit: Unit) -> Prompt | None:
                prompt: Prompt | None = None
                if feedback.text:
                    prompt, _ = post(unit, kind, unit.sessions.get(session.id), feedback.text, principal)
                store(unit, replace(pull, sent=tuple(dict.fromkeys(pull.sent + feedback.keys))), principal)
                remember(unit, feedback, prompt)
                return prompt

            prompt = await core.store.write(work)
            core.live.wake(session.id)
            return feedback, prompt

    # ── parts ─────────────────────────────────────────────────────────────────────────────────────

    async def _tip(self, session: Session, target: Target) -> str:
        tip = await self._core.git.branches.tip(target.info, session.branch)
        if tip is None:
            raise WrongStateError(
                f"the branch {session.branch} of {session.name} is gone",
                hint="create it again with `git branch`",
            )
        return tip

    async def _uncommitted(self, session: Session) -> tuple[str, ...]:
        if session.state == State.ARCHIVED:
            return ()
        changed = await self._core.git.diffs.changed_files(session.worktree, "HEAD")
        if not changed:
            return ()
        files = f"{plural(len(changed), 'file')} {'is' if len(changed) == 1 else 'are'}"
        return (
            f"{files} not committed and missing in the pull request: {', '.join(changed[:5])}{', …' if len(changed) > 5 else ''}",
        )


def _no_github(remote: str) -> ForgeLoginError:
    return ForgeLoginError(
        f"{remote} is not a GitHub host that gh is logged in to",
        hint="install gh and run `gh auth login`, or open it there by hand",
    )
