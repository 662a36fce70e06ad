"""Integrity check of the whole database, on demand."""

from rametd.store.rows import Table

PROBLEMS = 20


class HealthReads(Table):
    def problems(self) -> list[str]:
        """Problems in SQLite's words, at most `PROBLEMS` of each kind; empty if there are none. Takes seconds at millions of rows."""
        words = [str(row[0]) for row in self._db.execute(f"PRAGMA quick_check({PROBLEMS})")]
        broken = [
            f"row {row} of {table} refers to a missing row of {parent}"
            for table, row, parent, _ in self._db.execute("PRAGMA foreign_key_check").fetchmany(PROBLEMS)
        ]
        return [each for each in words if each != "ok"] + broken
