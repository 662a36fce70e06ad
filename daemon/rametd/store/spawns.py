"""Records of sessions that sessions have spawned, for the caps on families."""

from rametd.store.rows import Table


class SpawnReads(Table):
    def total(self, root_id: str) -> int:
        """Number of sessions spawned in a family, removed ones included."""
        (count,) = self._db.execute("SELECT count(*) FROM spawns WHERE root_id = ?", (root_id,)).fetchone()
        return int(count)

    def since(self, root_id: str, time: float) -> int:
        """Number of sessions spawned in a family after ``time``."""
        (count,) = self._db.execute(
            "SELECT count(*) FROM spawns WHERE root_id = ? AND create_time > ?", (root_id, time)
        ).fetchone()
        return int(count)

    def descendants(self, session_id: str, root_id: str) -> list[str]:
        """Ids of all descendants. Removed ones are included if a session spawned them."""
        rows = self._db.execute(
            "WITH RECURSIVE links (id, parent_id) AS"
            " (SELECT session_id, parent_id FROM spawns WHERE root_id = ?2"
            " UNION SELECT id, parent_id FROM sessions WHERE root_id = ?2),"
            " found (id) AS (SELECT id FROM links WHERE parent_id = ?1"
            " UNION SELECT links.id FROM links JOIN found ON links.parent_id = found.id) SELECT id FROM found",
            (session_id, root_id),
        )
        return [identity for (identity,) in rows]


class Spawns(SpawnReads):
    def add(self, session_id: str, root_id: str, parent_id: str) -> None:
        self._db.execute(
            "INSERT INTO spawns (session_id, root_id, parent_id, create_time) VALUES (?, ?, ?, ?)",
            (session_id, root_id, parent_id, self._scope.now),
        )
