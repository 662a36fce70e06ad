"""Whether the database is whole: for whoever asks, since it reads all of it."""

from rametd.store.rows import Table

PROBLEMS = 20


class HealthReads(Table):
    def problems(self) -> list[str]:
        """What SQLite finds wrong, in its own words, `PROBLEMS` at most; empty when all is well. Takes seconds where there are millions of rows."""
        words = [str(row[0]) for row in self._db.execute(f"PRAGMA quick_check({PROBLEMS})")]
        broken = [
            f"row {row} of {table} refers to a row of {parent} that is not there"
            for table, row, parent, _ in self._db.execute("PRAGMA foreign_key_check").fetchmany(PROBLEMS)
        ]
        return [each for each in words if each != "ok"] + broken
