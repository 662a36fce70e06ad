"""Polls all open pull requests."""

import asyncio
from dataclasses import dataclass

import structlog

from rametd.domain.errors import ForgeUnavailableError, RametError
from rametd.domain.operations import Kind, Operation
from rametd.domain.pull_requests import OPEN_STATES, PullRequest
from rametd.services.core import Core
from rametd.services.pull_requests.book import PullRequestBook, patience_of

log = structlog.get_logger()

PERIOD_S = 60.0
LONGEST_S = 900.0
"""Maximum period in seconds; each error doubles the period."""


@dataclass(slots=True)
class _Turn:
    """Time of the next refresh, and failures in a row."""

    due: float = 0.0
    failures: int = 0


class PullRequestTracker:
    """`run` refreshes each open pull request about once a minute, one after another.

    After an error of a host, or a rate limit, all its pull requests wait. Tests wind ``core.clock``
    and call `tick`.
    """

    def __init__(self, core: Core, pulls: PullRequestBook) -> None:
        self._core = core
        self._pulls = pulls
        self._news = asyncio.Event()
        self._turns: dict[str, _Turn] = {}  # by session, or by the id of an operation
        self._resting: dict[str, float] = {}  # host → when it may be asked again
        pulls.changed = self._news.set

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            self._news.clear()
            try:
                rest = await self.tick()
            except RametError as error:  # such as a full disk: retry a minute later
                log.warning("pull requests not refreshed", error=error.message)
                rest = PERIOD_S
            try:
                async with asyncio.timeout(rest):
                    await self._news.wait()
            except TimeoutError:
                continue

    async def tick(self) -> float | None:
        """Refresh the pull requests that are due. Return the seconds until the next refresh, None
        if there is nothing to poll."""
        core = self._core
        operations, pulls = await core.store.read(
            lambda reader: (reader.operations.list(kinds=(Kind.PULL_REQUEST,)), reader.pull_requests.open())
        )
        begun = [operation for operation in operations if self._is_left_over(operation)]
        living = {operation.id for operation in begun} | {pull.session_id for pull in pulls}
        self._turns = {key: turn for key, turn in self._turns.items() if key in living}
        for operation in begun:
            await self._resolve(operation)
        for pull in pulls:
            await self._look(pull)
        now = core.clock()
        return max(0.0, min(turn.due for turn in self._turns.values()) - now) if self._turns else None

    def _is_left_over(self, operation: Operation) -> bool:
        """Whether a killed daemon left the operation; a running call finishes its own."""
        return not self._pulls.is_busy(operation.session_id)

    async def _resolve(self, operation: Operation) -> None:
        turn = self._turns.setdefault(operation.id, _Turn())
        if turn.due > self._core.clock():
            return
        try:
            await self._pulls.resolve(operation)
        except RametError as error:
            self._put_off(turn, error)
            log.warning("outcome of a push unknown", session=operation.session_id, error=error.message)
        else:
            del self._turns[operation.id]

    async def _look(self, pull: PullRequest) -> None:
        core = self._core
        turn = self._turns.setdefault(pull.session_id, _Turn())
        if (resting := self._resting.get(pull.host, 0.0)) > core.clock():
            turn.due = max(turn.due, resting)
        if turn.due > core.clock():
            return
        try:
            pull = await self._pulls.look_again(pull.session_id)
        except RametError as error:
            self._put_off(turn, error)
            if isinstance(error, ForgeUnavailableError):
                self._resting[pull.host] = turn.due
            await self._pulls.note_failure(pull.session_id, error)
            return
        if pull.state in OPEN_STATES:
            turn.failures, turn.due = 0, core.clock() + PERIOD_S
        else:
            del self._turns[pull.session_id]

    def _put_off(self, turn: _Turn, error: RametError) -> None:
        turn.failures += 1
        turn.due = self._core.clock() + max(min(PERIOD_S * 2**turn.failures, LONGEST_S), patience_of(error))
