"""Which sessions were spawned by sessions: what the caps of a family count."""

from rametd.store.rows import Table


class SpawnReads(Table):
    def total(self, root_id: str) -> int:
        """How many a family has had in all, removed ones included."""
        (count,) = self._db.execute("SELECT count(*) FROM spawns WHERE root_id = ?", (root_id,)).fetchone()
        return int(count)

    def since(self, root_id: str, time: float) -> int:
        """How many of them after a time."""
        (count,) = self._db.execute(
            "SELECT count(*) FROM spawns WHERE root_id = ? AND create_time > ?", (root_id, time)
        ).fetchone()
        return int(count)


class Spawns(SpawnReads):
    def add(self, session_id: str, root_id: str, parent_id: str) -> None:
        self._db.execute(
            "INSERT INTO spawns (session_id, root_id, parent_id, create_time) VALUES (?, ?, ?, ?)",
            (session_id, root_id, parent_id, self._scope.now),
        )
