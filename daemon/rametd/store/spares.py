"""Spares. The row is inserted before its directory is created and deleted after it is removed."""

from rametd.domain.spares import Spare
from rametd.store.rows import RowType, Table

SPARES = RowType(Spare, "spares", columns={"commit": "commit_id"})


class SpareReads(Table):
    def list(self, repo_id: str | None = None) -> list[Spare]:
        """Spares, oldest first."""
        return SPARES.find_all(self._db, "WHERE ?1 IS NULL OR repo_id = ?1 ORDER BY create_time, id", repo_id)

    def get(self, spare_id: str) -> Spare | None:
        return SPARES.find_one(self._db, "WHERE id = ?", spare_id)


class Spares(SpareReads):
    def add(self, spare: Spare) -> Spare:
        SPARES.add(self._db, spare)
        return spare

    def update(self, spare_id: str, **changes: object) -> bool:
        """Set fields; return whether the spare exists: it may have been claimed or removed."""
        statement, values = SPARES.update(changes)
        return self._db.execute(f"{statement} WHERE id = ?", (*values, spare_id)).rowcount > 0

    def remove(self, spare_id: str) -> bool:
        """Delete a spare; return whether it existed: of two claims, one gets it."""
        return self._db.execute("DELETE FROM spares WHERE id = ?", (spare_id,)).rowcount > 0
