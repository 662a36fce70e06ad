"""Requests of an agent's control protocol, and the outbox of lines to write to the agent."""

from collections.abc import Iterable

from rametd.domain.models import ControlRequest, Outgoing, OutgoingKind
from rametd.store.rows import RowType, Table

CONTROL = RowType(ControlRequest, "control_requests")
OUTBOX = RowType(Outgoing, "outbox")


class ControlReads(Table):
    def get(self, session_id: str, generation: int, control_id: str) -> ControlRequest | None:
        return CONTROL.find_one(
            self._db, "WHERE session_id = ? AND generation = ? AND id = ?", session_id, generation, control_id
        )

    def open(self, session_id: str, generation: int) -> list[ControlRequest]:
        """Requests that are neither answered nor cancelled, in order of arrival."""
        return CONTROL.find_all(
            self._db,
            "WHERE session_id = ? AND generation = ? AND answer = x'' AND NOT cancelled ORDER BY number",
            session_id,
            generation,
        )


class Control(ControlReads):
    def add(self, request: ControlRequest) -> bool:
        """Store a request; False if its id is known in this generation (the first one stays)."""
        if self.get(request.session_id, request.generation, request.id) is not None:
            return False
        self._db.execute(
            "INSERT INTO control_requests (session_id, generation, id, subtype, frame, answer, cancelled, number)"
            " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7,"
            " (SELECT ifnull(max(number), 0) + 1 FROM control_requests WHERE session_id = ?1 AND generation = ?2))",
            CONTROL.values(request),
        )
        return True

    def set_answer(self, session_id: str, generation: int, control_id: str, answer: bytes) -> bool:
        """Store the first answer. False if the request is answered, cancelled or unknown."""
        changed = self._db.execute(
            "UPDATE control_requests SET answer = ?"
            " WHERE session_id = ? AND generation = ? AND id = ? AND answer = x'' AND NOT cancelled",
            (answer, session_id, generation, control_id),
        )
        return changed.rowcount > 0

    def cancel(self, session_id: str, generation: int, control_id: str) -> bool:
        """Mark a request as cancelled. False if it is cancelled already, or unknown."""
        changed = self._db.execute(
            "UPDATE control_requests SET cancelled = 1 WHERE session_id = ? AND generation = ? AND id = ? AND NOT cancelled",
            (session_id, generation, control_id),
        )
        return changed.rowcount > 0

    def settle(self, session_id: str, generation: int, control_id: str) -> None:
        """Delete an answered request, once the agent has confirmed the answer."""
        self._db.execute(
            "DELETE FROM control_requests WHERE session_id = ? AND generation = ? AND id = ? AND answer <> x''",
            (session_id, generation, control_id),
        )

    def prune(self, session_id: str, generation: int) -> int:
        """Delete the requests of a generation that has ended; return how many."""
        return self._db.execute(
            "DELETE FROM control_requests WHERE session_id = ? AND generation = ?", (session_id, generation)
        ).rowcount


class OutboxReads(Table):
    def pending(self, session_id: str, generation: int) -> list[Outgoing]:
        """Lines that are not confirmed as written, in order."""
        return OUTBOX.find_all(
            self._db, "WHERE session_id = ? AND generation = ? AND written = 0 ORDER BY id", session_id, generation
        )

    def has(self, session_id: str, generation: int, ref: str) -> bool:
        """Whether a line of this reference was ever added, written or not."""
        found = self._db.execute(
            "SELECT 1 FROM outbox WHERE session_id = ? AND generation = ? AND ref = ?", (session_id, generation, ref)
        )
        return found.fetchone() is not None


class Outbox(OutboxReads):
    def add(self, session_id: str, generation: int, kind: OutgoingKind, ref: str, line: bytes) -> Outgoing:
        (number,) = self._db.execute(
            "INSERT INTO outbox (session_id, generation, kind, ref, line) VALUES (?, ?, ?, ?, ?) RETURNING id",
            (session_id, generation, str(kind), ref, line),
        ).fetchone()
        return Outgoing(number, session_id, generation, kind, ref, line, written=False)

    def mark_written(self, ids: Iterable[int]) -> None:
        self._db.executemany("UPDATE outbox SET written = 1 WHERE id = ?", [(each,) for each in ids])

    def drop(self, session_id: str, generation: int) -> int:
        """Delete all lines of a generation that has ended, written or not; return how many."""
        return self._db.execute(
            "DELETE FROM outbox WHERE session_id = ? AND generation = ?", (session_id, generation)
        ).rowcount
