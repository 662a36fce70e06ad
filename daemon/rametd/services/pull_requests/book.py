"""Stored state of pull requests, its message and event, and refreshing it from GitHub."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from urllib.parse import quote
from weakref import WeakValueDictionary

from ramet.v1 import event_pb2, landing_pb2

from rametd.domain.errors import (
    ForgeLoginError,
    ForgeRefusedError,
    ForgeUnavailableError,
    PushRefusedError,
    RametError,
)
from rametd.domain.models import DAEMON, Session
from rametd.domain.operations import Kind, Operation
from rametd.domain.pull_requests import OPEN_STATES, PullRequest
from rametd.services import events
from rametd.services.core import Core
from rametd.services.environments import for_git
from rametd.services.messages import to_message
from rametd.services.pull_requests.github import GitHub
from rametd.services.pull_requests.look import look, seen
from rametd.services.pull_requests.target import Target, find_target
from rametd.store import Reader, Unit


def pull_message(reader: Reader, pull: PullRequest) -> landing_pb2.PullRequest:
    session = reader.sessions.find(pull.session_id)
    return to_message(landing_pb2.PullRequest, pull, session_name=session.name if session is not None else "")


def store(unit: Unit, pull: PullRequest, principal: str = DAEMON) -> PullRequest:
    """Store a pull request, with an event if a visible value changed. Raises `SessionNotFoundError`
    for a removed session."""
    unit.sessions.get(pull.session_id)
    before = unit.pull_requests.find(pull.session_id)
    stored = unit.pull_requests.put(pull)
    if before is None or _visible(before) != _visible(stored):
        payload = event_pb2.PullRequestChanged(pull_request=pull_message(unit, stored))
        unit.events.append(events.make(payload, session_id=pull.session_id, repo_id=pull.repo_id, principal=principal))
    return stored


def _visible(pull: PullRequest) -> PullRequest:
    """The row without the values that each refresh changes."""
    return replace(pull, check_time=None, etags={}, sent=(), update_time=0.0)


class PullRequestBook:
    """Serializes the work on a session's pull request."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        core.operations.handle(Kind.PULL_REQUEST, self._undo)
        self.changed: Callable[[], None] = lambda: None
        """Wakes the tracker, which sets it."""

    def lock(self, session_id: str) -> asyncio.Lock:
        return self._locks.setdefault(session_id, asyncio.Lock())

    def is_busy(self, session_id: str) -> bool:
        """Whether a call works on the session's pull request."""
        lock = self._locks.get(session_id)
        return lock is not None and lock.locked()

    async def refresh(self, session_id: str) -> PullRequest:
        """Refresh now. A failure is stored in ``error``."""
        async with self.lock(session_id):
            pull = await self._core.store.read(lambda reader: reader.pull_requests.get(session_id))
            if not pull.number:
                return pull
            try:
                return await self._look(await self.github_of(pull), pull)
            except RametError as error:
                return await self.note_failure(session_id, error) or pull

    async def look_again(self, session_id: str) -> PullRequest:
        """Refresh with conditional requests, which do not count against the rate limit if nothing
        has changed. Raises what `look` raises."""
        async with self.lock(session_id):
            pull = await self._core.store.read(lambda reader: reader.pull_requests.get(session_id))
            if pull.state not in OPEN_STATES:
                return pull
            github = await self.github_of(pull)
            etags: dict[str, str] = {}
            changed = False
            # Read the tags before the data: the next refresh finds a change in between.
            for path in watched(pull):
                answer = await github.get(path, etag=pull.etags.get(path, ""))
                etags[path] = answer.etag or (pull.etags.get(path, "") if answer.status == 304 else "")
                changed = changed or answer.status != 304
            if not changed:
                return await self._store(replace(pull, check_time=self._core.clock(), error=""))
            return await self._look(github, replace(pull, etags=etags))

    async def note_failure(self, session_id: str, error: RametError) -> PullRequest | None:
        """Store why the refresh failed, with the last known state. Return None if the row is
        gone."""

        def work(unit: Unit) -> PullRequest | None:
            known = unit.pull_requests.find(session_id)
            return store(unit, replace(known, error=error.message)) if known is not None else None

        return await self._core.store.write(work)

    async def github_of(self, pull: PullRequest) -> GitHub:
        return GitHub(pull.host, await for_git(self._core, pull.session_id, forge=True))

    async def _undo(self, operation: Operation, error: BaseException | None) -> None:
        """Drop the operation if GitHub refused it. After any other failure only GitHub knows the
        outcome, which the tracker requests."""
        if isinstance(error, PushRefusedError | ForgeRefusedError | ForgeLoginError):
            await self._core.store.write(lambda unit: unit.operations.undo(operation.id))

    async def based_on(self, pull: PullRequest) -> list[int]:
        """Numbers of open pull requests that are based on this one's branch."""
        github = await self.github_of(pull)
        listed = (await github.get(f"repos/{pull.slug}/pulls?state=open&base={quote(pull.branch, safe='')}")).json
        return [int(each["number"]) for each in listed if each["base"]["ref"] == pull.branch]

    async def _look(self, github: GitHub, pull: PullRequest, principal: str = "daemon") -> PullRequest:
        answer = await look(github, pull)
        return await self._store(seen(pull, answer, self._core.clock()), principal)

    async def _store(self, pull: PullRequest, principal: str = "daemon") -> PullRequest:
        """Store the row, and finish the operation: the row has its outcome."""

        def work(unit: Unit) -> PullRequest:
            for operation in operations_of(unit, pull.session_id):
                unit.operations.finish(operation)
            return store(unit, pull, principal)

        return await self._core.store.write(work)

    async def resolve(self, operation: Operation) -> None:
        """Find the outcome of a push or creation that a killed daemon began. Raises what `look`
        raises; the operation then stays."""
        core = self._core
        async with self.lock(operation.session_id):
            session = await core.store.read(lambda reader: reader.sessions.find(operation.session_id))
            if session is None:
                await core.store.write(lambda unit: unit.operations.undo(operation.id))
                return
            target = await self._target(session, operation.data["remote"])
            there = await core.git.remotes.tip(target.info, target.remote, session.branch, target.environment)
            known = await core.store.read(lambda reader: reader.pull_requests.find(session.id))
            if known is None and there != operation.data["commit"]:
                await core.store.write(lambda unit: unit.operations.undo(operation.id))
                return
            pull = known or first(session, target)
            if there == operation.data["commit"]:
                pull = replace(pull, commit=there)
            if target.github is not None:
                pull = replace(pull, host=target.github.host, slug=target.slug)
                if (found := await self._open_one(target.github, target, session, pull)) is not None:
                    await self._look(target.github, replace(pull, number=found["number"]))
                    return
            await self._store(pull)

    async def _open_one(
        self, github: GitHub, target: Target, session: Session, pull: PullRequest
    ) -> dict[str, Any] | None:
        """The open pull request of the branch: the known one, or the first."""
        if pull.number and pull.state in OPEN_STATES:
            known: dict[str, Any] = (await github.get(f"repos/{pull.slug}/pulls/{pull.number}")).json
            if known["state"] == "open":
                return known
        head = target.head(session.branch)
        listed = (await github.get(f"repos/{target.slug}/pulls?state=open&head={quote(head, safe='')}")).json
        # GitHub ignores a head that it does not understand and lists all, so compare it here.
        mine: list[dict[str, Any]] = [each for each in listed if each["head"]["label"].lower() == head.lower()]
        return mine[0] if mine else None

    async def _target(self, session: Session, remote: str) -> Target:
        core = self._core
        known = await core.store.read(lambda reader: reader.pull_requests.find(session.id))
        return await find_target(core, session, remote or (known.remote if known is not None else ""))


def first(session: Session, target: Target) -> PullRequest:
    """A row without data."""
    return PullRequest(session.id, session.repo_id, target.remote, session.branch, session.base_ref)


def operations_of(reader: Reader, session_id: str) -> list[Operation]:
    """Pushes and creations that run, or whose outcome is unknown; each has the pushed commit."""
    return reader.operations.list(session_id, kinds=(Kind.PULL_REQUEST,))


def watched(pull: PullRequest) -> tuple[str, ...]:
    """Paths that reveal each change: the pull request with reviews, check runs, older statuses."""
    repo, commit = f"repos/{pull.slug}", pull.head_commit
    paths = (f"{repo}/pulls/{pull.number}",)
    return paths + (
        (f"{repo}/commits/{commit}/check-runs?per_page=100", f"{repo}/commits/{commit}/status") if commit else ()
    )


def patience_of(error: RametError) -> float:
    """Seconds that the server asked to wait, 0 for none."""
    return float(error.data.get("retry_after", "0")) if isinstance(error, ForgeUnavailableError) else 0.0
