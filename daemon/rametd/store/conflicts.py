"""Conflicts between pairs of sessions, as last found; a clean pair has no row."""

from rametd.domain.conflicts import PairConflict
from rametd.store.rows import RowType, Table

CONFLICTS = RowType(PairConflict, "conflicts")


class ConflictReads(Table):
    def get(self, session_id: str, other_id: str) -> PairConflict | None:
        return CONFLICTS.read_one(
            self._db.execute(f"{CONFLICTS.select} WHERE session_id = ? AND other_id = ?", (session_id, other_id))
        )

    def list(self, repo_id: str) -> list[PairConflict]:
        return CONFLICTS.read_all(
            self._db.execute(f"{CONFLICTS.select} WHERE repo_id = ? ORDER BY session_id, other_id", (repo_id,))
        )


class Conflicts(ConflictReads):
    def put(self, conflict: PairConflict) -> PairConflict:
        self.remove(conflict.session_id, conflict.other_id)
        self._db.execute(CONFLICTS.insert, CONFLICTS.values(conflict))
        return conflict

    def remove(self, session_id: str, other_id: str) -> None:
        self._db.execute("DELETE FROM conflicts WHERE session_id = ? AND other_id = ?", (session_id, other_id))
