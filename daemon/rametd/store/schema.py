"""Schema migrations: numbered SQL files, each applied in one transaction, after a backup."""

import re
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

APPLICATION_ID = 0x52414D54  # "RAMT": identifies the file as Ramet's
BACKUPS_KEPT = 3


@dataclass(frozen=True, slots=True)
class Migration:
    number: int
    sql: str


@cache
def migrations() -> tuple[Migration, ...]:
    """The package's migrations, numbered from 1 without a gap."""
    found = sorted(
        (int(entry.name[:4]), entry.read_text(encoding="utf-8"))
        for entry in (files("rametd.store") / "migrations").iterdir()
        if re.fullmatch(r"\d{4}_\w+\.sql", entry.name)
    )
    return tuple(Migration(number, sql) for number, sql in found)


def version_of(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def migrate(db: sqlite3.Connection, path: Path, steps: Sequence[Migration]) -> None:
    """Migrate the database at ``path`` to the newest version, after a backup if it has data."""
    version = version_of(db)
    pending = [step for step in steps if step.number > version]
    if pending and version > 0:
        _back_up(db, path, version)
    for step in pending:
        _apply(db, step)


def expected(steps: Sequence[Migration], version: int) -> set[tuple[str, str, str]]:
    """(type, name, sql) of each table and index in a database of ``version``."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        for step in steps[:version]:
            _apply(db, step)
        return objects(db)


def objects(db: sqlite3.Connection) -> set[tuple[str, str, str]]:
    return set(
        db.execute("SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%'")
    )


def _apply(db: sqlite3.Connection, step: Migration) -> None:
    # A migration rebuilds a table by dropping it; enforced foreign keys would then delete the rows
    # that refer to it. The pragma has no effect inside a transaction, so it is set before, and the
    # check runs at the end.
    (enforced,) = db.execute("PRAGMA foreign_keys").fetchone()
    db.execute("PRAGMA foreign_keys = OFF")
    try:
        db.executescript(f"BEGIN IMMEDIATE;\n{step.sql}")
        broken = db.execute("PRAGMA foreign_key_check").fetchone()
        if broken is not None:
            raise sqlite3.IntegrityError(f"migration {step.number} leaves a dangling reference in {broken[0]}")
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        db.execute(f"PRAGMA user_version = {step.number}")
        db.execute("COMMIT")
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")
        db.execute(f"PRAGMA foreign_keys = {enforced}")


def _back_up(db: sqlite3.Connection, path: Path, version: int) -> None:
    target = path.with_name(f"{path.name}.backup-{version}")
    unfinished = target.with_name(f"{target.name}.tmp")
    unfinished.unlink(missing_ok=True)
    with closing(sqlite3.connect(unfinished)) as copy:
        db.backup(copy)
    unfinished.replace(target)
    for old in sorted(path.parent.glob(f"{path.name}.backup-[0-9]*"), key=_backup_version)[:-BACKUPS_KEPT]:
        old.unlink()


def _backup_version(path: Path) -> int:
    digits = path.name.rpartition("-")[2]
    return int(digits) if digits.isdecimal() else 0
