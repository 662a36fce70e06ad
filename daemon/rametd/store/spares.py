"""Prepared worktrees. A row is there before its directory and goes after it: its state says what is under way."""

from rametd.domain.spares import Spare
from rametd.store.rows import RowType, Table

SPARES = RowType(Spare, "spares", columns={"commit": "commit_id"})


class SpareReads(Table):
    def list(self, repo_id: str | None = None) -> list[Spare]:
        """The oldest first."""
        return SPARES.read_all(
            self._db.execute(f"{SPARES.select} WHERE ?1 IS NULL OR repo_id = ?1 ORDER BY create_time, id", (repo_id,))
        )

    def get(self, spare_id: str) -> Spare | None:
        return SPARES.read_one(self._db.execute(f"{SPARES.select} WHERE id = ?", (spare_id,)))


class Spares(SpareReads):
    def add(self, spare: Spare) -> Spare:
        self._db.execute(SPARES.insert, SPARES.values(spare))
        return spare

    def update(self, spare_id: str, **changes: object) -> bool:
        """Whether it was there: it may have been claimed or removed meanwhile."""
        statement, values = SPARES.update(changes)
        return self._db.execute(f"{statement} WHERE id = ?", (*values, spare_id)).rowcount > 0

    def remove(self, spare_id: str) -> bool:
        """Whether it was there: of two who want it, one gets it."""
        return self._db.execute("DELETE FROM spares WHERE id = ?", (spare_id,)).rowcount > 0
