"""Quick detection of a damaged database, and its quarantine.

Two files next to the database help: ``NAME.id`` holds the epoch and so proves that a database
existed; ``NAME.damaged`` records damage that a running daemon found.
"""

import os
import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from rametd.domain.errors import DatabaseUnusableError, NewerDatabaseError, StoreBusyError
from rametd.platform.state import private_file
from rametd.store import connection, schema
from rametd.store.schema import Migration

# Small tables that everything depends on. A full check reads the whole file, which takes far too
# long with a million events. A read finds damage elsewhere, records it in ``NAME.damaged``, and the
# next start handles it.
_CHECKED = ("meta", "runs", "repos", "sessions", "agents", "operations")


def id_note(path: Path) -> Path:
    return path.with_name(f"{path.name}.id")


def damage_note(path: Path) -> Path:
    return path.with_name(f"{path.name}.damaged")


def find_damage(path: Path, steps: Sequence[Migration]) -> str | None:
    """Return why the database is unusable; None if it is good, or never existed.

    It only reads, so that a database of a newer release stays unchanged.
    Raises ``NewerDatabaseError``, ``DatabaseUnusableError``, ``StoreBusyError``.
    """
    existed = id_note(path).exists()
    if damage_note(path).exists():
        return damage_note(path).read_text(encoding="utf-8").strip() or "it was found damaged"
    if not path.exists():
        return "its file is gone" if existed else None
    if not path.is_file():
        raise DatabaseUnusableError(f"{path} is not a file", hint="move it away")
    if path.stat().st_size == 0:
        return "its file is empty" if existed else None
    try:
        with closing(connection.connect(path, "ro")) as db:
            return _inspect(db, path, steps, existed=existed)
    except sqlite3.Error as error:
        if connection.is_damage(error):
            return str(error)
        raise refusal(error, path) from error


def refusal(error: sqlite3.Error, path: Path) -> DatabaseUnusableError | StoreBusyError:
    """The error to raise when SQLite cannot open a database for a reason other than damage."""
    if connection.is_busy(error):
        return StoreBusyError(f"{path} is locked by another program", hint="close it and try again")
    return DatabaseUnusableError(
        f"{path} cannot be opened: {error}", hint="check its permissions and the free space on its disk"
    )


def _inspect(db: sqlite3.Connection, path: Path, steps: Sequence[Migration], *, existed: bool) -> str | None:
    version = schema.version_of(db)
    (application,) = db.execute("PRAGMA application_id").fetchone()
    present = schema.objects(db)
    if application != schema.APPLICATION_ID:
        if existed:
            return "it is not a database of Ramet"
        if present or version:
            raise DatabaseUnusableError(f"{path} is the database of another program", hint="move it away")
        return None  # the first start was killed before it created a table
    if version > len(steps):
        raise NewerDatabaseError(
            f"the database has version {version}; this release supports up to {len(steps)}",
            hint="install the newer release again, or set RAMET_HOME to another directory",
            version=str(version),
        )
    missing = schema.expected(steps, version) - present
    if missing:
        return f"its schema lacks {', '.join(sorted(name for _, name, _ in missing))}"
    for table in _CHECKED:
        if any(name == table for _, name, _ in present):
            (verdict,) = db.execute(f"PRAGMA quick_check({table})").fetchone()
            if verdict != "ok":
                return str(verdict).replace("\n", " ")
    return None


def note_damage(path: Path, what: str) -> None:
    """Record damage durably, so that the next start quarantines the database."""
    _write_durably(damage_note(path), what)


def note_epoch(path: Path, epoch: str) -> None:
    note = id_note(path)
    if not note.exists() or note.read_text(encoding="utf-8").strip() != epoch:
        _write_durably(note, epoch)


def quarantine(path: Path, reason: str, now: float) -> Path:
    """Move the database and its companions to a new directory below ``quarantine/``; return the
    directory.

    A kill at any point is safe: from ``NAME.id``, which stays, the next start knows that a database
    existed. Move the database before its log: without the log it could look like an intact, older
    database.
    """
    target = _new_directory(path.parent / "quarantine", time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now)))
    (target / "reason.txt").write_text(f"{reason}\n", encoding="utf-8")
    for each in (
        path,
        *(path.with_name(path.name + suffix) for suffix in ("-wal", "-shm", "-journal")),
        damage_note(path),
    ):
        if each.exists():
            each.replace(target / each.name)
    _sync_directory(target)
    _sync_directory(path.parent)
    return target


def last_quarantine(path: Path) -> tuple[Path, str]:
    """The newest quarantine directory and its reason, read from disk: an earlier start may have
    been killed after moving."""
    parent = path.parent / "quarantine"
    target = max(parent.glob("*/"), key=lambda each: (each.stat().st_mtime_ns, each.name), default=parent)
    note = target / "reason.txt"
    return target, note.read_text(encoding="utf-8").strip() if note.exists() else "its file is gone"


def _new_directory(parent: Path, name: str) -> Path:
    parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    number = 1
    while True:
        target = parent / (name if number == 1 else f"{name}-{number}")
        try:
            target.mkdir(mode=0o700)
        except FileExistsError:
            number += 1
        else:
            return target


def _write_durably(path: Path, text: str) -> None:
    unfinished = path.with_name(f"{path.name}.tmp")
    with open(unfinished, "w", encoding="utf-8", opener=private_file) as file:
        file.write(f"{text}\n")
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)
    _sync_directory(path.parent)


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
