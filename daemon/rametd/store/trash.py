"""Trash: removed sessions that can still be restored."""

from rametd.domain.models import Restore, TrashEntry
from rametd.store.rows import RowType, Table

RESTORES = RowType(Restore, "restores")
TRASH = RowType(TrashEntry, "trash", columns={"commit": "commit_id"})


class TrashReads(Table):
    def get(self, entry_id: str) -> TrashEntry | None:
        return TRASH.find_one(self._db, "WHERE id = ?", entry_id)

    def find_by_prefix(self, prefix: str) -> list[TrashEntry]:
        return TRASH.find_by_prefix(self._db, prefix)

    def expired(self, now: float) -> list[TrashEntry]:
        return TRASH.find_all(self._db, "WHERE expire_time <= ? ORDER BY expire_time, id", now)

    def list(self, repo_id: str | None = None) -> list[TrashEntry]:
        """Entries, newest first."""
        return TRASH.find_all(self._db, "WHERE ?1 IS NULL OR repo_id = ?1 ORDER BY create_time DESC, id", repo_id)


class Trash(TrashReads):
    def add(self, entry: TrashEntry) -> TrashEntry:
        TRASH.add(self._db, entry)
        return entry

    def remove(self, entry_id: str) -> None:
        """Delete an entry, if it exists."""
        self._db.execute("DELETE FROM trash WHERE id = ?", (entry_id,))


class RestoreReads(Table):
    def get(self, session_id: str, origin: str) -> Restore | None:
        return RESTORES.find_one(self._db, "WHERE session_id = ? AND origin = ?", session_id, origin)


class Restores(RestoreReads):
    def put(self, restore: Restore) -> None:
        self._db.execute(
            "DELETE FROM restores WHERE session_id = ? AND origin = ?", (restore.session_id, restore.origin)
        )
        RESTORES.add(self._db, restore)

    def remove_all(self, session_id: str) -> None:
        self._db.execute("DELETE FROM restores WHERE session_id = ?", (session_id,))
