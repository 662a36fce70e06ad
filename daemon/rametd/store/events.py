"""The log of events: numbered without gaps, in the order of their commits."""

from collections.abc import Collection, Iterator, Sequence
from typing import TypedDict, Unpack

from rametd.domain.models import Event, NewEvent
from rametd.store.rows import RowType, Table, Value, marks

EVENTS = RowType(Event, "events")


class Wanted(TypedDict, total=False):
    """Which events: those after ``after_seq``, ``limit`` of them at most; with ``newest`` the last ones."""

    after_seq: int
    session_id: str | None
    repo_id: str | None
    kinds: Collection[str] | None
    limit: int
    newest: bool


class EventReads(Table):
    def last_seq(self) -> int:
        """The number given last, also when that event was pruned; 0 before the first."""
        row = self._db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'events'").fetchone()
        return 0 if row is None else int(row[0])

    def first_seq(self) -> int:
        """The oldest that is still there, or the next to come when there is none."""
        (first,) = self._db.execute("SELECT min(seq) FROM events").fetchone()
        return self.last_seq() + 1 if first is None else int(first)

    def each(self, **wanted: Unpack[Wanted]) -> Iterator[Event]:
        """Ascending, with ``newest`` descending from the last one. Each is read when it is asked for: who leaves early has not loaded the rest."""
        limit, newest = wanted.get("limit", 1000), wanted.get("newest", False)
        conditions: list[str] = ["seq > ?"]
        values: list[Value] = [wanted.get("after_seq", 0)]
        if (session_id := wanted.get("session_id")) is not None:
            conditions.append("session_id = ?")
            values.append(session_id)
        if (repo_id := wanted.get("repo_id")) is not None:
            # The plus keeps the planner from taking the repository's index where the session's is far narrower.
            conditions.append("repo_id = ?" if session_id is None else "+repo_id = ?")
            values.append(repo_id)
        if (kinds := wanted.get("kinds")) is not None:
            conditions.append(f"kind IN ({marks(len(kinds))})")
            values += kinds
        rows = self._db.execute(
            f"{EVENTS.select} WHERE {' AND '.join(conditions)} ORDER BY seq {'DESC' if newest else 'ASC'} LIMIT ?",
            (*values, limit),
        )
        return map(EVENTS.read, rows)

    def page(self, room: int | None = None, **wanted: Unpack[Wanted]) -> tuple[list[Event], bool]:
        """Ascending, also with ``newest``: as many of them as fit into ``room`` bytes, but one at least; and whether some did not."""
        found: list[Event] = []
        size = 0
        full = False
        for event in self.each(**wanted):
            size += event.size
            full = room is not None and size > room and bool(found)
            if full:
                break
            found.append(event)
        return found[::-1] if wanted.get("newest") else found, full

    def list(self, **wanted: Unpack[Wanted]) -> list[Event]:
        """The same, all of them: for events that are few, or of kinds that are small."""
        return self.page(**wanted)[0]


class Events(EventReads):
    def append(self, *events: NewEvent) -> Sequence[Event]:
        """Their numbers follow on the last; a time of 0 becomes now. Subscribers see them once the work is committed."""
        gathered = self._scope.appended  # by this transaction, whose numbers no other can give
        first = (gathered[-1].seq if gathered else self.last_seq()) + 1
        appended = [
            Event(
                first + index,
                each.kind,
                each.session_id,
                each.repo_id,
                each.principal,
                each.payload,
                each.frame,
                each.time or self._scope.now,
            )
            for index, each in enumerate(events)
        ]
        self._db.executemany(EVENTS.insert, [EVENTS.values(each) for each in appended])
        newest = {each.session_id: each.seq for each in appended if each.session_id}
        self._db.executemany(
            "UPDATE sessions SET last_seq = ? WHERE id = ?", [(seq, id_) for id_, seq in newest.items()]
        )
        self._scope.appended += appended
        return appended

    def prune(self, before_seq: int, *, limit: int = 10_000) -> int:
        """Drop the oldest, before ``before_seq``, at most ``limit`` in one work; returns how many."""
        return self._db.execute(
            "DELETE FROM events WHERE seq < min(?, (SELECT min(seq) FROM events) + ?)", (before_seq, limit)
        ).rowcount
