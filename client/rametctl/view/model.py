"""`View`: sessions and other shown parts, updated from one cursor into the event log."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar, cast

from ramet.v1 import event_pb2
from ramet.v1.common_pb2 import Cursor
from ramet.v1.event_pb2 import Event, WatchEventsResponse
from ramet.v1.session_pb2 import Session

from rametctl.connection.link import Link
from rametctl.errors import ClientError, ConnectionLostError, is_transient
from rametctl.view.parts import DETAIL, ROW, AnyPart, Part, Slot
from rametctl.view.transcript import PAGE, Transcript

T = TypeVar("T")

FIRST_PAUSE_S = 0.1
"""Seconds before the first attempt to reach a stopped daemon."""
READS = 4
"""Most parts to read concurrently."""
KEPT = 64
"""Hidden parts to cache, so that returning to one shows it at once."""

Key = tuple[AnyPart, str]


class Topic(StrEnum):
    """Kind of a change: a session, the connection, a transcript, a part."""

    SESSION = "session"
    CONNECTION = "connection"
    TRANSCRIPT = "transcript"
    PART = "part"


@dataclass(frozen=True)
class Change:
    """A change. ``key``: a session's id, "" for the connection; for a part, its name and key joined
    by a space."""

    topic: Topic
    key: str = ""


@dataclass(frozen=True)
class Outage:
    """A time without daemon: since when (`time.monotonic`), and the error."""

    since: float
    error: ClientError

    @property
    def message(self) -> str:
        return self.error.message


class View:
    """Create it in the loop that runs it; `run` keeps it current until it is cancelled.

    ``sessions`` has all sessions of the daemon, archived ones too, the oldest first. ``ready`` is
    set once they are read. ``outage`` is None while the daemon is connected.

    ``after``: begin with the events after this cursor instead of a snapshot. ``sessions`` then has
    those that are given, which were read at the cursor or later, and those that have changed since;
    a transcript requested before `run` has only later events. Transcripts drop no event: the
    painter must take them all.
    """

    def __init__(self, link: Link, *, after: "Cursor | None" = None, sessions: Iterable[Session] = ()) -> None:
        self.link = link
        self.sessions: dict[str, Session] = {each.id: each for each in sessions}
        self.transcripts: dict[str, Transcript] = {}
        self.ready = asyncio.Event()
        self.outage: Outage | None = None
        self.changed = asyncio.Event()
        """Set by every change; a painter that waits for it clears it."""
        self._version = 0
        self._changes: OrderedDict[Change, int] = OrderedDict()
        self._slots: OrderedDict[Key, Slot[Any]] = OrderedDict()
        self._wanted: set[Key] = set()
        self._stale: set[Key] = set()
        self._reading: set[Key] = set()
        self._read_at: dict[Key, float] = {}
        self._slow = asyncio.Semaphore(READS)
        self.snapshots = 0
        """Number of snapshots. Answers to requests from before the newest one are dropped."""
        self._cursor = after
        self._live = after is not None
        if self._live:
            self.ready.set()
        self._log: asyncio.Task[None] | None = None  # while it reads the event log
        self._pause = FIRST_PAUSE_S
        self._group: asyncio.TaskGroup | None = None  # while it runs

    # For painters

    def changes(self, since: int) -> tuple[int, set[Change]]:
        """Return changes after version ``since`` (0: everything), and the version for the next
        call."""
        found: set[Change] = set()
        for change, version in reversed(self._changes.items()):
            if version <= since:
                break
            found.add(change)
        return self._version, found

    def want(self, parts: Iterable[tuple[Part[Any], str]], transcripts: Iterable[str] = ()) -> None:
        """Update these parts and transcripts from now on, and no others."""
        self._wanted = set(parts)
        for key in self._wanted:
            if key not in self._slots:
                self._slots[key] = Slot()
                self._stale.add(key)
            self._slots.move_to_end(key)
            self._read_soon(key)
        shown = set(transcripts)
        for session_id in self.transcripts.keys() - shown:
            del self.transcripts[session_id]
        added = shown - self.transcripts.keys()
        for session_id in added:
            self._begin_transcript(session_id, stored=not self._live or self._group is not None)
        if added and self._log is not None:
            self._log.cancel()  # `_follow` continues from the cursor, with all events of these sessions
        while len(self._slots) > len(self._wanted) + KEPT:
            oldest = next(key for key in self._slots if key not in self._wanted)
            del self._slots[oldest]
            self._stale.discard(oldest)
            self._read_at.pop(oldest, None)

    def part(self, part: Part[T], key: str = "") -> Slot[T]:
        """Return the state of a part; an empty slot if no painter wants it."""
        return cast("Slot[T]", self._slots.get((part, key)) or Slot())

    def refresh(self, part: Part[Any], key: str = "") -> None:
        """Read a part again now, for example after an action whose events may take a moment."""
        if (part, key) in self._slots:
            self._stale.add((part, key))
            self._read_soon((part, key))

    # Updates

    async def run(self) -> None:
        """Follow the daemon over restarts. Raise a ClientError only for a lasting error."""
        try:
            async with asyncio.TaskGroup() as self._group:
                while True:
                    self._log = self._start(self._follow())
                    await asyncio.wait([self._log])
        except* ClientError as errors:
            raise errors.exceptions[0] from None
        finally:
            self._group = self._log = None

    async def _follow(self) -> None:
        """Read the event log until the transcripts that are shown change."""
        while True:
            request = event_pb2.WatchEventsRequest(
                after=self._cursor, snapshot=self._cursor is None, rows=True, detailed=self.transcripts
            )
            try:
                async for item in self.link.stream(lambda daemon: daemon.events.WatchEvents, request):
                    self._pause = FIRST_PAUSE_S
                    self._connected()
                    if item.HasField("reset"):
                        self._cursor = None  # another log: begin again with a snapshot
                        break
                    self._take(item)
                    if item.HasField("cursor"):
                        self._cursor = item.cursor
                else:
                    raise ConnectionLostError("the daemon ended the stream")
            except ClientError as error:
                if not is_transient(error):
                    raise
                self._lost(error)
                await self.link.wait_for_daemon(self._pause)
                self._pause = min(self._pause * 2, 2.0)

    def _take(self, item: "WatchEventsResponse") -> None:
        for event in item.events:
            self._apply(event)
        match item.WhichOneof("item"):
            case "snapshot":
                self._begin(item.snapshot.sessions)
            case "changed":
                for session in item.changed.sessions:
                    self._take_session(session)

    def _begin(self, sessions: Iterable["Session"]) -> None:
        """Start again from a snapshot, and drop everything read before."""
        self.snapshots += 1
        self.ready.set()
        for session_id in self.sessions:
            self._note(Topic.SESSION, session_id)
        self.sessions = {session.id: session for session in sorted(sessions, key=_age)}
        for session_id in self.sessions:
            self._note(Topic.SESSION, session_id)
        for session_id in self.transcripts:
            self._begin_transcript(session_id, stored=not self._live)
        self._stale = set(self._slots)
        for key in self._wanted:
            self._read_soon(key)

    def _apply(self, event: "Event") -> None:
        kind = event.WhichOneof("payload")
        if kind is None:
            return
        session_id = event.session_id
        if (transcript := self.transcripts.get(session_id)) is not None:
            transcript.add(event)
            self._note(Topic.TRANSCRIPT, session_id)
        if kind in DETAIL:
            return
        if session_id:
            self._apply_to_session(kind, event)
        self._make_stale(kind, event)

    def _make_stale(self, kind: str, event: "Event") -> None:
        for part, key in self._slots:
            if kind in part.stale_on and part.concerns(event, key):
                self._stale.add((part, key))
                self._read_soon((part, key))

    def _apply_to_session(self, kind: str, event: "Event") -> None:
        """Apply an event to its session; the daemon sends the complete session a moment later.

        A session has the number of its newest event, so that an older event changes nothing.
        """
        session_id = event.session_id
        session = self.sessions.get(session_id)
        if kind == "session_removed":
            if session is not None:
                del self.sessions[session_id]
                self._note(Topic.SESSION, session_id)
            return
        if session is not None and session.last_seq >= event.seq:
            return
        if kind in {"session_created", "session_updated"}:
            found = event.session_created if kind == "session_created" else event.session_updated
            session = type(found.session)()
            session.CopyFrom(found.session)
            self.sessions[session_id] = session
        elif session is not None and kind == "state_changed":
            session.state = event.state_changed.new_state
            session.state_reason = event.state_changed.reason
        elif session is not None and kind == "request_opened":
            session.attention += 1
        elif session is not None and kind == "request_closed":
            session.attention -= min(session.attention, 1)
        if session is not None:
            session.last_seq = event.seq
            session.update_time.CopyFrom(event.time)
            self._note(Topic.SESSION, session_id)

    def _take_session(self, session: "Session") -> None:
        """Apply a session from a moment ago: newer than all earlier events, perhaps older than a
        repeated event."""
        known = self.sessions.get(session.id)
        if known is not None and (session.last_seq < known.last_seq or known == session):
            return
        self.sessions[session.id] = session
        self._note(Topic.SESSION, session.id)
        self._make_stale(ROW, event_pb2.Event(session_id=session.id, repo_id=session.repo_id))

    def _begin_transcript(self, session_id: str, *, stored: bool) -> None:
        self.transcripts[session_id] = transcript = Transcript(bounded=not self._live)
        if not stored:
            transcript.load((), more=True)
        elif self.ready.is_set():  # or the first snapshot would begin it again
            self._start(self._load_transcript(session_id, transcript))

    async def _load_transcript(self, session_id: str, transcript: Transcript) -> None:
        request = event_pb2.ListEventsRequest(session=session_id, page_size=PAGE, newest=True, omit_partials=True)
        while not transcript.loaded:
            try:
                page = await self.link.call(lambda daemon: daemon.events.ListEvents, request)
                transcript.load(page.events, more=bool(page.next_page_token) or len(page.events) == PAGE)
            except ClientError as error:
                if not is_transient(error):
                    transcript.load((), more=False)  # the session is gone
                else:
                    await self.link.wait_for_daemon(0.5)
        self._note(Topic.TRANSCRIPT, session_id)

    # Parts

    def _read_soon(self, key: Key) -> None:
        if self.ready.is_set() and key in self._wanted and key in self._stale and key not in self._reading:
            self._reading.add(key)
            self._start(self._read(key))

    async def _read(self, key: Key) -> None:
        """Read a part until it is current: again if it becomes stale meanwhile."""
        part, name = key
        try:
            while key in self._stale and key in self._wanted:
                await asyncio.sleep(self._read_at.get(key, 0.0) + part.every - time.monotonic())
                async with self._slow:
                    self._stale.discard(key)
                    snapshot = self.snapshots
                    value, error = None, ""
                    try:
                        value = await part.read(self.link, name)
                    except ClientError as failure:
                        if is_transient(failure):
                            self._stale.add(key)
                            await self.link.wait_for_daemon(0.5)
                            continue
                        error = failure.message
                    self._read_at[key] = time.monotonic()
                slot = self._slots.get(key)
                if slot is not None and snapshot == self.snapshots and (error, value) != (slot.error, slot.value):
                    slot.value = slot.value if error else value
                    slot.error = error
                    self._note(Topic.PART, f"{part.name} {name}")
        finally:
            self._reading.discard(key)

    # Bookkeeping

    def _connected(self) -> None:
        if self.outage is not None:
            self.outage = None
            self._note(Topic.CONNECTION)

    def _lost(self, error: ClientError) -> None:
        since = time.monotonic() if self.outage is None else self.outage.since
        self.outage = Outage(since, error)
        self._note(Topic.CONNECTION)

    def _note(self, topic: Topic, key: str = "") -> None:
        self._version += 1
        change = Change(topic, key)
        self._changes[change] = self._version
        self._changes.move_to_end(change)
        self.changed.set()

    def _start(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        assert self._group is not None
        return self._group.create_task(work)


def _age(session: "Session") -> tuple[int, int, str]:
    return session.create_time.seconds, session.create_time.nanos, session.id
