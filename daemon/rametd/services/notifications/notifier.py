"""The notifier: queues a notification for each item that needs a person, and has each way deliver
it.

The notifier reads events after a stored cursor. One unit of work stores the notifications of an
event and the new cursor, so a kill neither loses an item nor queues it twice. Delivery is *at least
once*: a message gets an id before it is sent, and its rows are deleted after its delivery. After a
kill in between, the next daemon sends the same message with the same id again; a receiver that
compares ids shows it once.
"""

import asyncio
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime, time, timedelta
from fnmatch import fnmatchcase

import structlog
from ramet.v1 import event_pb2

from rametd.config.model import Notify, NotifyWay
from rametd.domain.errors import RametError
from rametd.domain.landing import LandingState
from rametd.domain.models import Event, Hold, RequestKind, RequestState, Session
from rametd.domain.notifications import Notification, Topic, Way, WayTrouble
from rametd.domain.states import State
from rametd.services import events
from rametd.services.core import Core
from rametd.services.ids import new_id
from rametd.services.landing.entries import STATES as LANDING_STATES
from rametd.services.notifications import messages
from rametd.services.notifications.messages import Entry, Message
from rametd.services.notifications.ways import DeliveryError, ProcessEnvironment, deliver, enabled
from rametd.services.views import STATES
from rametd.store import Reader, Unit

log = structlog.get_logger()

KINDS = frozenset({"request_opened", "state_changed", "landing_changed"})
GATHER_S = 5.0
"""A message includes items that become due within this many seconds after its first one."""
SPACING_S = 15.0
"""Minimum number of seconds between two messages of one way."""
PAUSES_S = (5.0, 30.0, 120.0, 600.0, 1800.0)
"""Seconds until the next try, by the number of failures in a row; the last value from then on."""
FAILURES_SAID = 4
"""Number of failures in a row after which the person gets one warning."""
PAGE = 500
FOCUS_S = 60.0
"""Seconds after which a report of focus expires."""

TOPICS = {
    RequestKind.REVIEW: Topic.REVIEW,
    RequestKind.CONFLICT: Topic.CONFLICT,
}
"""All other requests count as waiting; a session's trouble has its own topic."""


class Notifier:
    """One task, `run`. Its work is in `step`, which tests call with their own clock."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._focus: dict[str, float] = {}  # client → until when its report counts
        self._next: dict[Way, float] = {}  # when a way may send again
        self._failed: dict[Way, NotifyWay] = {}  # the settings with which a way failed last
        self._news = asyncio.Event()
        self._off = False  # no way is enabled, and no cursor is stored

    # ── from outside ──────────────────────────────────────────────────────────────────────────────

    def report_focus(self, client: str, *, focused: bool) -> None:
        """Note that a dashboard has the keyboard, or no longer has it. A report expires after
        `FOCUS_S`: a killed client must not suppress notifications."""
        if focused:
            self._focus[client] = self._core.clock() + FOCUS_S
        else:
            self._focus.pop(client, None)

    async def test(self) -> list[tuple[Way, str]]:
        """Send a test message by each way at once. Return the ways with their errors, "" without an
        error. A way that works ends its pause: what waits for it is due."""
        config, message = self._config, Message(new_id(), ())

        async def one(way: Way) -> tuple[Way, str]:
            try:
                await deliver(way, message, config, self._process_environment)
            except DeliveryError as error:
                return way, str(error)
            await self._core.store.write_for_sure(lambda unit: unit.notifications.clear_trouble(way))
            self._news.set()
            return way, ""

        return list(await asyncio.gather(*(one(way) for way in enabled(config))))

    # ── the task ──────────────────────────────────────────────────────────────────────────────────

    async def run(self) -> None:
        core = self._core
        unsubscribe = core.store.subscribe(self._offered)
        # Set the cursor as soon as a way is enabled: a cursor that the next event sets would be
        # after that event.
        core.on_configured.append(self._news.set)
        try:
            while True:
                self._news.clear()
                try:
                    rest = await self.step()
                except RametError as error:
                    log.warning("notifications", error=error.message)
                    rest = PAUSES_S[0]
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._news.wait(), None if rest == math.inf else max(rest, 0.05))
        finally:
            core.on_configured.remove(self._news.set)
            unsubscribe()

    def _offered(self, committed: Sequence[Event]) -> None:
        if any(event.kind in KINDS for event in committed) and not (self._off and not enabled(self._config)):
            self._news.set()

    @property
    def _config(self) -> Notify:
        return self._core.config.notify

    @property
    def _process_environment(self) -> ProcessEnvironment:
        return ProcessEnvironment(self._core.daemon_environment, self._core.home)

    async def step(self) -> float:
        """Queue new items, deliver those that are due; return the seconds until there may be more
        to do."""
        config, ways = self._config, enabled(self._config)
        await self._queue(config, ways)
        if not ways:
            return math.inf
        rests = await asyncio.gather(*(self._serve(way, settings, config) for way, settings in ways.items()))
        return min(rests)

    # ── queueing ──────────────────────────────────────────────────────────────────────────────────

    async def _queue(self, config: Notify, ways: Mapping[Way, NotifyWay]) -> None:
        store = self._core.store
        cursor = await store.read(lambda reader: reader.notifications.cursor())
        if not ways:
            if cursor is not None:
                await store.write_for_sure(lambda unit: unit.notifications.set_cursor(None))
            self._off = True
            return
        self._off = False
        if cursor is None:  # begin with new events: whoever enables notifications knows the present requests
            await store.write_for_sure(lambda unit: unit.notifications.set_cursor(unit.events.last_seq()))
            return
        while True:
            found = await store.read(
                lambda reader, after=cursor: reader.events.list(after_seq=after, kinds=KINDS, limit=PAGE)  # type: ignore[misc]
            )
            if not found:
                return
            cursor = found[-1].seq

            def work(unit: Unit, found: list[Event] = found, cursor: int = cursor) -> bool:
                added = [self._add(unit, event, config, ways) for event in found]
                unit.notifications.set_cursor(cursor)
                return any(added)

            if await store.write_for_sure(work):
                self._core.failpoint.hit("notify.queued")

    def _add(self, unit: Unit, event: Event, config: Notify, ways: Mapping[Way, NotifyWay]) -> bool:
        """Queue the item of an event for each way with its topic; return whether there is one."""
        found = item_of(unit, event)
        if found is None or found[1] not in config.on:
            return False
        item, topic = found
        repo = repo_name(unit, event.repo_id)
        for way, settings in ways.items():
            if (settings.on is not None and topic not in settings.on) or not any(
                fnmatchcase(repo, pattern) for pattern in settings.repos
            ):
                continue
            age = config.min_age if settings.min_age is None else settings.min_age
            unit.notifications.add(Notification(item, way, topic, event.session_id, event.time + age, event.time))
        return True

    # ── delivering ────────────────────────────────────────────────────────────────────────────────

    async def _serve(self, way: Way, settings: NotifyWay, config: Notify) -> float:
        """Deliver the due items of one way; return the seconds until it may have more to do."""
        core = self._core
        now = core.clock()
        queued, trouble = await core.store.read(
            lambda reader: (reader.notifications.list(way), reader.notifications.troubles().get(way))
        )
        if not queued:
            return math.inf
        begins = max(
            min(now if each.message else each.due_time for each in queued),
            self._next.get(way, 0.0),
            trouble.retry_time if trouble is not None and self._failed.get(way, settings) == settings else 0.0,
            quiet_until(config.quiet, now),
        )
        if begins > now:
            return begins - now
        message = await core.store.write_for_sure(lambda unit: self._claim(unit, way, now))
        core.failpoint.hit("notify.sending")
        if message is None:
            return 0.0 if len(await core.store.read(lambda reader: reader.notifications.list(way))) else math.inf
        try:
            await deliver(way, message, config, self._process_environment)
        except DeliveryError as error:
            self._failed[way] = settings
            failures = await core.store.write_for_sure(
                lambda unit, error=error: _failed(unit, way, message, error, core.clock())  # type: ignore[misc]
            )
            write = log.warning if failures == FAILURES_SAID else log.info
            write("notification not delivered", way=str(way), error=str(error), failures=failures)
        else:
            core.failpoint.hit("notify.sent")
            await core.store.write_for_sure(lambda unit: _delivered(unit, way, message))
            self._next[way] = core.clock() + SPACING_S
        return 0.0

    def _claim(self, unit: Unit, way: Way, now: float) -> Message | None:
        """Compose the next message of a way and bind it to its items. Return None if no due item
        still needs a person.

        A message that is bound already may have been sent by a killed daemon: it has the same id
        and items again.
        """
        queued = unit.notifications.list(way)
        bound = next((each.message for each in queued if each.message), "")
        if bound:
            chosen = [each for each in queued if each.message == bound]
        else:
            chosen = [each for each in queued if each.due_time <= now + GATHER_S]
        seen = not bound and self._focused(now)
        entries: list[Entry] = []
        rest: list[Notification] = []
        for each in chosen:
            entry = None if seen else entry_of(unit, each)
            if entry is not None:
                entries.append(entry)
                rest.append(each)
        unit.notifications.remove(each for each in chosen if each not in rest)
        if not rest:
            return None
        message = Message(bound or new_id(), messages.merge(entries))
        unit.notifications.mark(rest, message.id)
        return message

    def _focused(self, now: float) -> bool:
        """Return whether a person looks at a dashboard. It shows the items, so no way sends
        them."""
        self._focus = {client: until for client, until in self._focus.items() if until > now}
        return bool(self._focus)


def item_of(unit: Unit, event: Event) -> tuple[str, Topic] | None:
    """The item that an event announces, and its topic."""
    payload = event_pb2.Event.FromString(event.payload)
    if event.kind == "request_opened":
        request_id = payload.request_opened.request.id
        request = unit.requests.find(request_id)
        session = unit.sessions.find(event.session_id)
        if request is None or session is None:
            return None
        return f"request:{request_id}", topic_of(request.kind, session)
    if event.kind == "state_changed":
        if payload.state_changed.new_state != STATES[State.PAUSED]:
            return None
        session = unit.sessions.find(event.session_id)
        if session is None or session.hold != Hold.LIMIT:
            return None
        return f"limit:{session.id}", Topic.LIMIT
    landing = payload.landing_changed.landing
    if landing.state != LANDING_STATES[LandingState.LANDED]:
        return None
    return f"landing:{landing.id}", Topic.LANDED


def topic_of(kind: RequestKind, session: Session) -> Topic:
    if kind == RequestKind.TROUBLE:
        return Topic.BUDGET if session.hold == Hold.BUDGET else Topic.FAILED
    return TOPICS.get(kind, Topic.WAITING)


def entry_of(reader: Reader, notification: Notification) -> Entry | None:
    """Return the present text about an item; None if it no longer needs the person."""
    if notification.topic == Topic.LANDED:
        landing = reader.landings.find(notification.subject)
        if landing is None:
            return None
        repo = repo_name(reader, landing.repo_id)
        return messages.of_landing(notification, landing.session_name, repo, landing.target)
    session = reader.sessions.find(notification.session_id)
    if session is None:
        return None
    repo = repo_name(reader, session.repo_id)
    if notification.topic == Topic.LIMIT:
        return messages.of_limit(notification, session, repo) if session.hold == Hold.LIMIT else None
    request = reader.requests.find(notification.subject)
    if request is None or request.state != RequestState.OPEN:
        return None
    return messages.of_request(notification, request, session, repo)


def repo_name(reader: Reader, repo_id: str) -> str:
    """Name of a repository; "" if it is no longer registered."""
    return next((repo.name for repo in reader.repos.list() if repo.id == repo_id), "")


def quiet_until(quiet: str, now: float) -> float:
    """Return the end of the present quiet hours in seconds since the epoch, 0 outside of them.
    ``quiet`` is in local time."""
    if not quiet:
        return 0.0
    begin, end = (time.fromisoformat(each) for each in quiet.split("-"))
    here = datetime.fromtimestamp(now)  # noqa: DTZ006 - the person's own clock
    inside = begin <= here.time() < end if begin < end else (here.time() >= begin or here.time() < end)
    if not inside:
        return 0.0
    ends = datetime.combine(here.date(), end)
    return (ends if ends > here else ends + timedelta(days=1)).timestamp()


def pause_after(failures: int) -> float:
    return PAUSES_S[min(failures, len(PAUSES_S)) - 1]


def _failed(unit: Unit, way: Way, message: Message, error: DeliveryError, now: float) -> int:
    """Store a failure; return the number of failures in a row."""
    before = unit.notifications.troubles().get(way)
    failures = (before.failures if before is not None else 0) + 1
    unit.notifications.set_trouble(WayTrouble(way, failures, str(error), now + pause_after(failures)))
    if error.certain:  # it was not delivered: the next try may include newer items
        unit.notifications.mark([each for each in unit.notifications.list(way) if each.message == message.id], "")
    if failures == FAILURES_SAID:
        words = f"notifications by {way} fail: {error}; `rametctl notify test` tries again"
        unit.events.append(events.make(event_pb2.Warning(message=words)))
    return failures


def _delivered(unit: Unit, way: Way, message: Message) -> None:
    unit.notifications.remove([each for each in unit.notifications.list(way) if each.message == message.id])
    unit.notifications.clear_trouble(way)
