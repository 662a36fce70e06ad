"""The event log: numbered without gaps, in commit order."""

from collections.abc import Collection, Iterator, Sequence
from typing import TypedDict, Unpack

from rametd.domain.models import Event, LastWords, NewEvent
from rametd.store.rows import RowType, Table, Value, json_text, marks

EVENTS = RowType(Event, "events")


class EventFilter(TypedDict, total=False):
    """Selects at most ``limit`` events after ``after_seq``: the first ones or, with ``newest``, the
    last ones."""

    after_seq: int
    session_id: str | None
    repo_id: str | None
    kinds: Collection[str] | None
    limit: int
    newest: bool


class EventReads(Table):
    def last_seq(self) -> int:
        """The last number assigned, even if that event was pruned; 0 before the first event."""
        row = self._db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'events'").fetchone()
        return 0 if row is None else int(row[0])

    def first_seq(self) -> int:
        """Number of the oldest stored event; of the next event if none is stored."""
        (first,) = self._db.execute("SELECT min(seq) FROM events").fetchone()
        return self.last_seq() + 1 if first is None else int(first)

    def each(self, **which: Unpack[EventFilter]) -> Iterator[Event]:
        """Iterate over events in ascending order, with ``newest`` descending. Each is read only
        when requested."""
        limit, newest = which.get("limit", 1000), which.get("newest", False)
        conditions: list[str] = ["seq > ?"]
        values: list[Value] = [which.get("after_seq", 0)]
        if (session_id := which.get("session_id")) is not None:
            conditions.append("session_id = ?")
            values.append(session_id)
        if (repo_id := which.get("repo_id")) is not None:
            # The plus stops the planner from using the repository's index: the session's is far
            # narrower.
            conditions.append("repo_id = ?" if session_id is None else "+repo_id = ?")
            values.append(repo_id)
        if (kinds := which.get("kinds")) is not None:
            conditions.append(f"kind IN ({marks(len(kinds))})")
            values += kinds
        rows = self._db.execute(
            f"{EVENTS.select} WHERE {' AND '.join(conditions)} ORDER BY seq {'DESC' if newest else 'ASC'} LIMIT ?",
            (*values, limit),
        )
        return map(EVENTS.read, rows)

    def page(
        self, room: int | None = None, *, frames: bool = True, **which: Unpack[EventFilter]
    ) -> tuple[list[Event], bool]:
        """Events in ascending order, as many as fit into ``room`` bytes (at least one), and whether
        some did not fit.

        Without ``frames``, these take no room.
        """
        found: list[Event] = []
        size = 0
        full = False
        for event in self.each(**which):
            size += event.size if frames else len(event.payload)
            full = room is not None and size > room and bool(found)
            if full:
                break
            found.append(event)
        return found[::-1] if which.get("newest") else found, full

    def list(self, **which: Unpack[EventFilter]) -> list[Event]:
        """Events in ascending order, without a limit on bytes: for few or small events."""
        return self.page(**which)[0]


class Events(EventReads):
    """Inserts all appended events together, before the commit or the next read: a statement costs
    more than a row."""

    def append(self, *events: NewEvent, words: Sequence[LastWords] = ()) -> Sequence[Event]:
        """Append events and return them numbered; a time of 0 becomes now. Subscribers see them
        after the commit.

        ``words`` are stored with them, without changing the version of the sessions. An empty value
        changes nothing, nor does a message of a conversation that the session has left.
        """
        scope = self._scope
        # No other transaction can assign numbers meanwhile.
        first = (scope.appended[-1].seq if scope.appended else super().last_seq()) + 1
        appended = [
            Event(
                first + index,
                each.kind,
                each.session_id,
                each.repo_id,
                each.principal,
                each.payload,
                each.frame,
                each.time or scope.now,
            )
            for index, each in enumerate(events)
        ]
        scope.appended += appended
        for each in words:
            if each.session_id in scope.words:
                self.flush()
            scope.words[each.session_id] = each
        return appended

    def flush(self) -> None:
        """Insert the appended events, and update their sessions."""
        scope = self._scope
        rows = scope.appended[scope.inserted :]
        newest = {each.session_id: each.seq for each in rows if each.session_id}
        concerned = scope.words | newest
        said, scope.words, scope.inserted = scope.words, {}, len(scope.appended)
        EVENTS.insert_many(self._db, rows)  # a tuple of its columns as they are
        if concerned:
            self._db.execute(
                "UPDATE OR FAIL sessions SET last_seq = ifnull(new ->> 4, last_seq), doing = ifnull(nullif(new ->> 3, ''), doing), last_message_id ="
                " iif(new ->> 2 <> '' AND conversation_id = new ->> 1, new ->> 2, last_message_id)"
                " FROM (SELECT value AS new FROM json_each(?)) WHERE id = new ->> 0",
                (json_text([(*said.get(each, LastWords(each)), newest.get(each)) for each in concerned]),),
            )

    def last_seq(self) -> int:
        self.flush()
        return super().last_seq()

    def first_seq(self) -> int:
        self.flush()
        return super().first_seq()

    def each(self, **which: Unpack[EventFilter]) -> Iterator[Event]:
        self.flush()
        return super().each(**which)

    def prune(self, before_seq: int, *, limit: int = 10_000) -> int:
        """Delete the oldest events before ``before_seq``, at most ``limit``; return how many."""
        self.flush()
        return self._db.execute(
            "DELETE FROM events WHERE seq < min(?, (SELECT min(seq) FROM events) + ?)", (before_seq, limit)
        ).rowcount
