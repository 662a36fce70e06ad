"""Connections to the database, and what SQLite's errors mean to us."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from rametd.domain.errors import DatabaseUnusableError

_BUSY_MS = 5_000
_PAGE_CACHE_KIB = 8_192
_WAL_PAGES = 2_000  # 8 MB: bounds what a start after a crash has to read back
_WAL_BYTES_KEPT = 32 << 20

_DAMAGE = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_NO_ROOM = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN})
_BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})


def connect(path: Path, mode: Literal["ro", "rw"]) -> sqlite3.Connection:
    """A connection without transactions of its own; it may be made in one thread and used in another, one at a time.

    No memory map: a file cut short under a running daemon would then be a SIGBUS instead of an error.
    """
    uri = f"file:{quote(os.fsencode(path))}?mode={mode}"
    db = sqlite3.connect(uri, uri=True, isolation_level=None, cached_statements=256, check_same_thread=False)
    try:
        db.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")
        db.execute(f"PRAGMA cache_size = -{_PAGE_CACHE_KIB}")
    except sqlite3.Error:  # a damaged file shows itself here
        db.close()
        raise
    return db


def create(path: Path) -> None:
    """Make an empty file that is ours alone; SQLite gives its companions the same permissions."""
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))


def prepare_to_write(db: sqlite3.Connection) -> None:
    """Raises ``DatabaseUnusableError`` where the file system has no shared memory for the log."""
    (mode,) = db.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise DatabaseUnusableError(
            f"the database cannot keep a write-ahead log (it stays in mode {mode!r})",
            hint="put RAMET_HOME on a local disk",
        )
    db.execute("PRAGMA foreign_keys = ON")
    db.execute(f"PRAGMA wal_autocheckpoint = {_WAL_PAGES}")
    db.execute(f"PRAGMA journal_size_limit = {_WAL_BYTES_KEPT}")


@contextmanager
def savepoint(db: sqlite3.Connection) -> Iterator[None]:
    """What is done inside is undone when it raises, and nothing else of the transaction is."""
    db.execute("SAVEPOINT work")
    try:
        yield
    except (
        BaseException
    ):  # whatever it was: the transaction goes on, and the next work's commit must not take half of this one along
        if db.in_transaction:  # some errors, a full disk among them, end the whole transaction
            db.execute("ROLLBACK TO work")
            db.execute("RELEASE work")
        raise
    db.execute("RELEASE work")


def is_damage(error: Exception) -> bool:
    return _primary(error) in _DAMAGE


def is_no_room(error: Exception) -> bool:
    """The disk is full, broken or read-only: nothing can be written for now."""
    return _primary(error) in _NO_ROOM


def is_busy(error: Exception) -> bool:
    return _primary(error) in _BUSY


def _primary(error: Exception) -> int | None:
    """The low byte of SQLite's code; the rest says where it happened. None for errors that the module itself makes."""
    code = getattr(error, "sqlite_errorcode", None) if isinstance(error, sqlite3.Error) else None
    return None if code is None else code & 0xFF
