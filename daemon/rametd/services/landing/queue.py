"""The merge queues: adding entries, and one task for each target."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

import structlog
from ramet.v1 import event_pb2

from rametd.domain.errors import InvalidInputError, RametError, SessionNotFoundError, WrongStateError
from rametd.domain.landing import ENDED, Landing, LandingState
from rametd.domain.models import Event
from rametd.domain.operations import Kind
from rametd.services.commands.setup import Setup
from rametd.services.core import Core
from rametd.services.landing import entries
from rametd.services.landing.check import Checker
from rametd.services.landing.drafting import METHODS, NewLandings, draft_entry
from rametd.services.landing.lane import Lane, Round
from rametd.services.landing.move import TRIES, Mover
from rametd.services.lookup import find_session
from rametd.services.trust.refusals import changes_of_landing
from rametd.services.worktrees.checkpoints import Checkpointer
from rametd.store import Reader, Unit

log = structlog.get_logger()

Answer = TypeVar("Answer")

WAKING = frozenset({"state_changed", "session_updated", "session_removed", "request_closed"})
"""Events after which an entry may be able to continue."""
SHORTEST_REST_S, LONGEST_REST_S = 0.5, 10.0
"""Interval in seconds at which to poll a checkout, which causes no events: at first, and after a
while."""


@dataclass(slots=True)
class _Serving:
    lane: Lane
    news: asyncio.Event
    task: "asyncio.Task[None]"


class LandingQueue:
    """All queues. A queue has a task while it has an open entry; `wake` starts a round of each."""

    def __init__(self, core: Core, setup: Setup, checkpointer: Checkpointer) -> None:
        self._core = core
        self._checkpointer = checkpointer
        self._checker = Checker(core, setup)
        self._mover = Mover(core)
        self._serving: dict[tuple[str, str], _Serving] = {}
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._unsubscribe: Callable[[], None] = lambda: None

    async def start(self) -> None:
        """Start the queues; call it once, after recovery."""
        await self._core.store.write_for_sure(entries.recover)
        self._unsubscribe = self._core.store.subscribe(self._events)
        self._news.set()
        self._task = asyncio.create_task(self._run(), name="landing")

    async def stop(self) -> None:
        """End the tasks. Running checks are repeated after the next start; a running move is
        finished first."""
        self._unsubscribe()
        tasks = [*([self._task] if self._task is not None else []), *(each.task for each in self._serving.values())]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._core.operations.idle(Kind.LAND)

    def wake(self) -> None:
        for each in self._serving.values():
            each.news.set()
        self._news.set()

    def _events(self, events: Sequence[Event]) -> None:
        # The removal of an entry, and that of its session, cancels its check.
        gone = [landing for event in events if (landing := removed_entry(event))]
        for landing in gone:
            for each in self._serving.values():
                each.lane.entry_removed(landing)
        kinds = {event.kind for event in events}
        if gone or kinds & WAKING:
            for each in self._serving.values():
                each.news.set()
        if "landing_changed" in kinds:  # perhaps the first entry of a queue
            self._news.set()

    async def _run(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            try:
                found = await self._core.store.read(lambda reader: {each.lane for each in reader.landings.open()})
            except RametError as error:
                log.error("merge queues not readable", error=error.message)
                await asyncio.sleep(SHORTEST_REST_S)
                self._news.set()  # no event announces that reading works again
                continue
            for key in found - set(self._serving):
                lane, news = Lane(self._core, self._checker, self._mover, *key), asyncio.Event()
                task = asyncio.create_task(self._serve(key, lane, news), name=f"landing-{key[1]}")
                self._serving[key] = _Serving(lane, news, task)

    async def _serve(self, key: tuple[str, str], lane: Lane, news: asyncio.Event) -> None:
        """Run rounds until no entry is open."""
        rest = SHORTEST_REST_S
        failures = 0
        while True:
            news.clear()
            try:
                outcome = await lane.round()
            except RametError as error:
                log.error("a round of landing failed", target=key[1], error=error.message)
                failures += 1
                await self._record_failure(lane, error, failures)
                outcome = Round.REST
            else:
                failures = 0
            if outcome == Round.AGAIN:
                rest = SHORTEST_REST_S
                continue
            # No `await` between this test and the return: a new entry finds this task, or starts
            # another one.
            if outcome == Round.EMPTY and not news.is_set():
                del self._serving[key]
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(rest if outcome == Round.REST else None):
                    await news.wait()
            rest = min(rest * 1.5, LONGEST_REST_S)

    async def _record_failure(self, lane: Lane, error: RametError, failures: int) -> None:
        """Store the failure of a round in its entries; ask the person after `TRIES` in a row."""
        try:
            await lane.fail(error, ask=failures >= TRIES)
        except RametError as second:
            log.error("the failure of a round was not stored", error=second.message)

    # ── calls ─────────────────────────────────────────────────────────────────────────────────────

    async def land(self, new: NewLandings, answer: Callable[[Unit, list[Landing], list[str]], Answer]) -> Answer:
        """Queue sessions for their target, all or none. An entry that is queued already stays; a
        held or returned one is queued again.

        ``answer`` builds the result from the entries and warnings. It runs in the unit of work that
        stores them.

        Raises SessionNotFoundError, RefNotFoundError, ProtectedBranchError, InvalidInputError, and
        WrongStateError for a session without work, or with uncommitted work.
        """
        core = self._core
        if not new.sessions:
            raise InvalidInputError("no session was named", hint="name at least one")
        if new.method and new.method not in METHODS:
            raise InvalidInputError(f"there is no method {new.method!r}", hint=f"use {', '.join(METHODS)}")
        if any(not command.strip() for command in new.checks):
            raise InvalidInputError("a check is empty", hint="give a shell command")
        sessions = await core.store.read(
            lambda reader: {
                session.id: session
                for name in new.sessions
                for session in [find_session(reader, name, repo_id=new.repo_id)]
            }
        )
        drafts = [await draft_entry(core, self._checkpointer, session, new) for session in sessions.values()]

        changes = [words for draft in drafts if (words := await changes_of_landing(core, draft.landing))]

        def work(unit: Unit) -> Answer:
            queued = [queue(unit, draft.landing, new.principal) for draft in drafts]
            return answer(unit, queued, [*changes, *(words for draft in drafts for words in draft.warnings)])

        made = await core.store.write(work)
        core.failpoint.hit("land.queued")
        self.wake()
        return made

    async def remove(self, name: str, principal: str, answer: Callable[[Unit, Landing], Answer]) -> Answer:
        """Remove an entry. Raises LandingNotFoundError, WrongStateError."""

        def work(unit: Unit) -> Answer:
            return answer(unit, entries.remove(unit, entries.find_landing(unit, name), "on request", principal))

        return await self._core.store.write(work)

    async def retry(self, name: str, principal: str, answer: Callable[[Unit, Landing], Answer]) -> Answer:
        """Queue an entry again. Raises LandingNotFoundError, WrongStateError."""

        def work(unit: Unit) -> Answer:
            return answer(unit, entries.retry(unit, entries.find_landing(unit, name), principal))

        made = await self._core.store.write(work)
        self.wake()
        return made

    async def wait(self, names: Sequence[str], within: float | None) -> tuple[list[Landing], bool]:
        """Wait until all entries have ended or are held. Return them, and whether ``within``
        seconds passed first."""
        core = self._core
        if not names:
            raise InvalidInputError("no landing was named", hint="`rametctl queue` lists them")
        ids = await core.store.read(lambda reader: [entries.find_landing(reader, name).id for name in names])
        watcher = core.hub.watch(await core.store.read(lambda reader: reader.events.last_seq()))
        loop = asyncio.get_running_loop()
        deadline = None if within is None else loop.time() + within
        try:
            while True:
                found = await core.store.read(lambda reader: [reader.landings.get(identity) for identity in ids])
                if is_settled(found):
                    return found, False
                left = None if deadline is None else deadline - loop.time()
                if left is not None and left <= 0:
                    return found, True
                await watcher.next(left)
        finally:
            watcher.close()


def removed_entry(event: Event) -> str:
    """Id of the entry whose removal an event records, "" for other events."""
    if event.kind != "landing_changed":
        return ""
    landing = event_pb2.Event.FromString(event.payload).landing_changed.landing
    return landing.id if landing.state == entries.STATES[LandingState.REMOVED] else ""


def is_settled(landings: Sequence[Landing]) -> bool:
    """Whether all entries have ended or are held."""
    return all(each.state in ENDED | {LandingState.HELD} for each in landings)


def queue(unit: Unit, draft: Landing, principal: str) -> Landing:
    """Store an entry, or queue the session's present one again. Raises `WrongStateError` if that
    has another target."""
    going = unit.operations.exclusive(draft.session_id)
    if unit.sessions.find(draft.session_id) is None or (going is not None and going.kind == Kind.REMOVE):
        raise SessionNotFoundError(f"{draft.session_name} was removed", hint="`rametctl ls` lists the sessions")
    known = unit.landings.of_session(draft.session_id)
    if known is None or known.state in ENDED:
        return entries.log(unit, unit.landings.add(draft), principal)
    if known.target != draft.target:
        raise WrongStateError(
            f"{draft.session_name} is in the queue of {known.target}", hint=f"`rametctl queue rm {known.id}` first"
        )
    if known.state in {LandingState.HELD, LandingState.RETURNED, LandingState.QUEUED, LandingState.WAITING}:
        retried = entries.retry(unit, known, principal)
        if (retried.method, retried.checks) != (draft.method, draft.checks):
            retried = unit.landings.update(known.id, method=draft.method, checks=draft.checks)
        return retried
    return known


def listed(reader: Reader, repo_id: str | None, *, ended: bool) -> list[Landing]:
    """Open entries, queue by queue in their order; with ``ended``, also the ended ones, newest
    first, after them."""
    return [*reader.landings.open(repo_id), *(reader.landings.ended(repo_id) if ended else [])]
