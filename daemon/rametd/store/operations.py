"""The journal of operations: begin, advance, then finish or undo. One that fails waits for a
retry."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, replace

from rametd.domain.operations import KINDS, Caller, Kind, Operation
from rametd.store.calls import Calls
from rametd.store.rows import RowType, Table, marks

OPERATIONS = RowType(Operation, "operations")
EXCLUSIVE = frozenset(kind for kind, traits in KINDS.items() if traits.exclusive)


class OperationReads(Table):
    def list(self, session_id: str | None = None, *, kinds: Collection[Kind] = tuple(Kind)) -> list[Operation]:
        """Unfinished operations, oldest first."""
        return OPERATIONS.find_all(
            self._db,
            f"WHERE (?1 IS NULL OR session_id = ?1) AND kind IN ({marks(len(kinds))}) ORDER BY create_time, id",
            session_id,
            *(str(kind) for kind in kinds),
        )

    def get(self, operation_id: str) -> Operation | None:
        return OPERATIONS.find_one(self._db, "WHERE id = ?", operation_id)

    def exclusive(self, session_id: str) -> Operation | None:
        """The exclusive operation of a session, under way or failed; at most one exists."""
        return next(iter(self.list(session_id, kinds=EXCLUSIVE)), None)

    def all_exclusive(self) -> Sequence[Operation]:
        return self.list(kinds=EXCLUSIVE)


class Operations(OperationReads):
    def begin(self, operation: Operation) -> Operation:
        now = self._scope.now
        stored = replace(operation, create_time=operation.create_time or now, update_time=now)
        OPERATIONS.add(self._db, stored)
        return stored

    def take_over(self, operation: Operation, caller: Caller) -> Operation:
        """Retry a failed operation for another caller, who gets its answer."""
        return self._write(operation.id, {**asdict(caller), "failed": ""}) or operation

    def advance(self, operation_id: str, step: str, data: Mapping[str, str] | None = None) -> Operation | None:
        """Store a completed step and merge its ``data``; None if the operation has ended."""
        now = self.get(operation_id)
        if now is None:
            return None
        return self._write(operation_id, {"step": step, "data": {**now.data, **(data or {})}})

    def fail(self, operation_id: str, why: str) -> Operation | None:
        """Record why an operation can neither be finished nor undone now; it can be retried."""
        return self._write(operation_id, {"failed": why})

    def finish(self, operation: Operation, answer: bytes | None = None) -> None:
        """End an operation and store the answer for its caller."""
        now = self.get(operation.id)
        self.undo(operation.id)
        if now is not None and now.request_id and answer is not None:
            Calls(self._scope).put(now.request_id, now.method, now.digest, answer)

    def undo(self, operation_id: str) -> bool:
        """End an operation without an answer; return whether it existed."""
        return self._db.execute("DELETE FROM operations WHERE id = ?", (operation_id,)).rowcount > 0

    def _write(self, operation_id: str, changes: Mapping[str, object]) -> Operation | None:
        statement, values = OPERATIONS.update({**changes, "update_time": self._scope.now})
        self._db.execute(f"{statement} WHERE id = ?", (*values, operation_id))
        return self.get(operation_id)
