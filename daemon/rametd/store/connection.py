"""Connections to the database, and the classes of SQLite errors that the store distinguishes."""

import os
import sqlite3
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from rametd.domain.errors import DatabaseUnusableError

_BUSY_MS = 5_000
_PAGE_CACHE_KIB = 8_192
_WAL_PAGES = 2_000  # 8 MB: bounds how much a start after a crash reads back
_WAL_BYTES_KEPT = 32 << 20

_DAMAGE = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_NO_ROOM = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN})
_BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})


def connect(path: Path, mode: Literal["ro", "rw"]) -> sqlite3.Connection:
    """Open a connection without implicit transactions, which threads may use one at a time.

    It uses no memory map: a file that is truncated under a running daemon would cause SIGBUS
    instead of an error.
    """
    uri = f"file:{quote(os.fsencode(path))}?mode={mode}"
    db = sqlite3.connect(uri, uri=True, isolation_level=None, cached_statements=256, check_same_thread=False)
    try:
        db.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")
        db.execute(f"PRAGMA cache_size = -{_PAGE_CACHE_KIB}")
    except sqlite3.Error:  # a damaged file fails here
        db.close()
        raise
    return db


def create(path: Path) -> None:
    """Create an empty file with mode 0600; SQLite gives its companions the same permissions."""
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))


def prepare_to_write(db: sqlite3.Connection) -> None:
    """Switch to WAL mode. Raises ``DatabaseUnusableError`` on a file system without shared memory
    for it."""
    (mode,) = db.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise DatabaseUnusableError(
            f"the database cannot use a write-ahead log (journal mode is {mode!r})",
            hint="put RAMET_HOME on a local disk",
        )
    db.execute("PRAGMA foreign_keys = ON")
    db.execute(f"PRAGMA wal_autocheckpoint = {_WAL_PAGES}")
    db.execute(f"PRAGMA journal_size_limit = {_WAL_BYTES_KEPT}")


def is_damage(error: Exception) -> bool:
    return _primary(error) in _DAMAGE


def is_no_room(error: Exception) -> bool:
    """Whether the disk is full, broken or read-only."""
    return _primary(error) in _NO_ROOM


def is_busy(error: Exception) -> bool:
    return _primary(error) in _BUSY


def _primary(error: Exception) -> int | None:
    """Low byte of SQLite's error code, without the detail bits. None for errors of the sqlite3
    module itself."""
    code = getattr(error, "sqlite_errorcode", None) if isinstance(error, sqlite3.Error) else None
    return None if code is None else code & 0xFF
