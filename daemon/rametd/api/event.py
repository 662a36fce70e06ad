"""EventService."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import Any

import grpc
from ramet.v1 import common_pb2, event_pb2, event_pb2_grpc, session_pb2

from rametd.api.context import here, principal
from rametd.api.paging import offset, position_of, size_of, token_of
from rametd.domain.errors import BadCursorError, InvalidInputError
from rametd.domain.models import Event
from rametd.services.core import Core
from rametd.services.delivery import sender_of
from rametd.services.events import AUDITED, DETAIL, HIDDEN, WITHOUT_PARTIALS
from rametd.services.family import is_family, require_family
from rametd.services.lookup import find_session
from rametd.services.views import event_message, sessions_messages
from rametd.store import Reader

Context = grpc.aio.ServicerContext[Any, Any]

HEARTBEAT_S = 15.0
ROWS_S = 0.25
"""Minimum number of seconds between two messages of changed sessions."""
ROW_S = 0.01
"""Minimum number of seconds between two such messages for each session in them: a hundred busy
sessions are sent once a second."""
PAGE_BYTES = 8 << 20
"""Maximum bytes of a page of events, which must fit into a message, and is in memory several times
while it is sent."""
MESSAGE_BYTES = 256 << 10
"""Maximum bytes of events in one message of a watch. A message for each event would take half of
its processor time."""
NEWEST_BYTES = 40 << 20
"""Maximum bytes of a page of the newest events, which must include the end of the last turn,
however long its text is."""


def readable(reader: Reader, caller_id: str, names: Sequence[str], near: str | None) -> list[str] | None:
    """Return the ids of the named sessions, None for all. A session may read only events of its
    family. Raise `NotAllowedError`."""
    caller = reader.sessions.get(caller_id) if caller_id else None
    if caller is None:
        return [find_session(reader, name, repo_id=near).id for name in names] or None
    if not names:
        return [each.id for each in reader.sessions.list(include_archived=True) if is_family(caller, each)]
    members = [find_session(reader, name, repo_id=near) for name in names]
    for member in members:
        require_family(reader, caller, member)
    return [member.id for member in members]


class EventServicer(event_pb2_grpc.EventServiceServicer):
    def __init__(self, core: Core) -> None:
        self._core = core

    def _cursor(self, seq: int) -> common_pb2.Cursor:
        return common_pb2.Cursor(epoch=self._core.store.epoch, seq=seq)

    async def _known(self, cursor: common_pb2.Cursor) -> bool:
        """Return whether a cursor is valid: of this epoch, and not beyond the end. A power cut can
        lose the last events, and their numbers are then assigned again."""
        if cursor.epoch != self._core.store.epoch:
            return False
        return cursor.seq <= await self._core.store.read(lambda reader: reader.events.last_seq())

    async def ListEvents(self, request: event_pb2.ListEventsRequest, context: Context) -> event_pb2.ListEventsResponse:
        after = position_of("events", request.page_token, offset) or 0
        if not after and request.HasField("after"):
            if not await self._known(request.after):
                raise BadCursorError(
                    "the cursor is of another event log: the database was rebuilt since",
                    hint="read again from the beginning",
                )
            after = request.after.seq
        size = size_of(request.page_size)
        who = sender_of(principal.get())
        near = here.get()

        def work(reader: Reader) -> event_pb2.ListEventsResponse:
            # A session that names no session reads its own events.
            named = request.session or who
            ids = readable(reader, who, [named] if named else [], near)
            found, cut = reader.events.page(
                NEWEST_BYTES if request.newest and not request.include_frames else PAGE_BYTES,
                frames=request.include_frames,
                after_seq=after,
                session_id=ids[0] if ids else None,
                kinds=AUDITED if request.audit else WITHOUT_PARTIALS if request.omit_partials else None,
                limit=size,
                newest=request.newest,
            )
            last = found[-1].seq if found else after
            # If a page of the newest events has no room for all, the next page starts at the
            # beginning of the log.
            more = token_of("events", 0 if request.newest else last)
            token = more if cut or (len(found) == size and not request.newest) else ""
            return event_pb2.ListEventsResponse(
                events=[event_message(event, frames=request.include_frames) for event in found],
                next_page_token=token,
                cursor=self._cursor(last),
            )

        return await self._core.store.read(work)

    async def WatchEvents(
        self, request: event_pb2.WatchEventsRequest, context: Context
    ) -> AsyncIterator[event_pb2.WatchEventsResponse]:
        core = self._core
        if request.snapshot and request.HasField("after"):
            raise InvalidInputError("a snapshot begins now and takes no cursor", hint="leave out one of them")
        if request.HasField("after") and not await self._known(request.after):
            yield event_pb2.WatchEventsResponse(reset=event_pb2.Reset(epoch=core.store.epoch), cursor=self._cursor(0))
            return

        who = sender_of(principal.get())
        near = here.get()

        def begin(reader: Reader) -> tuple[list[str] | None, int, event_pb2.Snapshot]:
            ids = readable(reader, who, request.sessions, near)
            seq = request.after.seq if request.HasField("after") else reader.events.last_seq()
            if not request.snapshot:
                return ids, seq, event_pb2.Snapshot()
            listed = reader.sessions.list(include_archived=True) if ids is None else map(reader.sessions.get, ids)
            return ids, seq, event_pb2.Snapshot(sessions=sessions_messages(reader, [*listed]))

        ids, seq, snapshot = await core.store.read(begin)
        watcher = core.hub.watch(seq, ids)
        detailed = frozenset(request.detailed)
        loop = asyncio.get_running_loop()
        # Sessions whose changes are not sent yet, with the first event that changed each. Cursors
        # stay before that event: a client that resumed after it would miss the change.
        changed: dict[str, int] = {}
        due = 0.0

        def cursor(seq: int) -> common_pb2.Cursor:
            return self._cursor(min(seq, next(iter(changed.values())) - 1) if changed else seq)

        try:
            if request.snapshot:
                yield event_pb2.WatchEventsResponse(snapshot=snapshot, cursor=self._cursor(seq))
            while True:
                found = await watcher.next(max(due - loop.time(), 0.0) if changed else HEARTBEAT_S)
                if request.rows:
                    for event in found:
                        if event.session_id and event.kind not in HIDDEN:
                            changed.setdefault(event.session_id, event.seq)
                for part in parts(
                    each for each in found if not request.rows or each.kind not in DETAIL or each.session_id in detailed
                ):
                    yield event_pb2.WatchEventsResponse(
                        events=[event_message(event, frames=request.include_frames) for event in part],
                        cursor=cursor(part[-1].seq),
                    )
                if changed and loop.time() >= due:
                    due = loop.time() + max(ROWS_S, ROW_S * len(changed))
                    sent, changed = list(changed), {}
                    rows = await core.store.read(lambda reader, ids=sent: present(reader, ids))  # type: ignore[misc]
                    yield event_pb2.WatchEventsResponse(
                        changed=event_pb2.Changed(sessions=rows), cursor=self._cursor(watcher.seq)
                    )
                elif not found:
                    yield event_pb2.WatchEventsResponse(heartbeat=event_pb2.Heartbeat(), cursor=cursor(watcher.seq))
        finally:
            watcher.close()


def parts(events: Iterable[Event]) -> Iterator[list[Event]]:
    """Divide events into messages of at most `MESSAGE_BYTES`, with at least one event each."""
    part: list[Event] = []
    size = 0
    for event in events:
        if part and size + event.size > MESSAGE_BYTES:
            yield part
            part, size = [], 0
        part.append(event)
        size += event.size
    if part:
        yield part


def present(reader: Reader, ids: Sequence[str]) -> list[session_pb2.Session]:
    """Return the sessions that still exist."""
    found = [reader.sessions.find(each) for each in ids]
    return sessions_messages(reader, [each for each in found if each is not None])
