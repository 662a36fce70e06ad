"""A keeper's directory: its file names, its lock, and records that are written atomically. Standard
library only.

lock           locked by flock for the keeper's life
spec.json      what to start: argv, cwd, names of the environment's variables, session, socket, limits
environment    NAME=value, each ended by NUL; the only file with secrets
run.json       the processes: pids with start times, boot id, protocol version; or {"error": …} if the start failed
exit.json      how the agent ended; written before the keeper exits
journal.N      the agent's stdout from offset N on (see `segments`)
stdin.N        the accepted input for the agent's stdin from offset N on
stderr(.old)   the last part of the agent's stderr
keeper.log     empty, unless the keeper itself failed
"""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LOCK, SPEC, ENVIRONMENT, RUN, EXIT, LOG = "lock", "spec.json", "environment", "run.json", "exit.json", "keeper.log"
JOURNAL, STDIN, STDERR, STDERR_OLD = "journal", "stdin", "stderr", "stderr.old"
STDERR_LIMIT = 256 << 10


def write_private(path: str, data: bytes) -> None:
    """Create ``path`` (0600) with ``data`` and sync it. Raise `FileExistsError` if it exists."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(data)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_record(directory: str, name: str, record: dict[str, Any]) -> None:
    """Replace ``directory/name`` by ``record``. After a crash at any instant, the file has the old
    record or the new one, complete."""
    fresh = os.path.join(directory, f".{name}.new")
    with suppress(FileNotFoundError):
        os.unlink(fresh)
    write_private(fresh, json.dumps(record).encode())
    os.rename(fresh, os.path.join(directory, name))
    sync_directory(directory)


def sync_directory(directory: str) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_record(directory: str, name: str) -> dict[str, Any] | None:
    """Return the record, None if the file is missing. Raise `ValueError` if it is no record."""
    try:
        with open(os.path.join(directory, name), "rb") as file:
            value = json.loads(file.read())
    except FileNotFoundError:
        return None
    if not isinstance(value, dict):
        raise ValueError(f"{name} holds no object")
    return value


def encode_environment(variables: dict[str, str]) -> bytes:
    return b"".join(os.fsencode(f"{name}={value}") + b"\0" for name, value in variables.items())


def decode_environment(data: bytes) -> dict[bytes, bytes]:
    pairs = (entry.partition(b"=") for entry in data.split(b"\0") if entry)
    return {name: value for name, _, value in pairs}


def acquire_lock(directory: str) -> int | None:
    """Take the lock and return the descriptor that holds it; None if another process has it."""
    descriptor = os.open(os.path.join(directory, LOCK), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def is_locked(directory: str) -> bool:
    """Return whether a keeper, or a launcher about to become one, has locked the directory."""
    try:
        descriptor = os.open(os.path.join(directory, LOCK), os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        # Use a shared lock: two concurrent checks must not take each other for a keeper.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def read_stderr_tail(directory: str, limit: int) -> bytes:
    """Return the last ``limit`` bytes of the agent's stderr."""
    tail = b""
    for name in (STDERR, STDERR_OLD):
        want = limit - len(tail)
        try:
            with open(os.path.join(directory, name), "rb") as file:
                size = os.fstat(file.fileno()).st_size
                file.seek(max(0, size - want))
                tail = file.read(want) + tail
        except FileNotFoundError:
            continue
    return tail


class StderrRing:
    """Stores the last bytes, at most `STDERR_LIMIT`, in two files of half that size. Never fails:
    on a full disk it drops bytes."""

    __slots__ = ("_descriptor", "_path", "_size", "dropped")

    def __init__(self, directory: str) -> None:
        self._path = os.path.join(directory, STDERR)
        self._size = 0
        self.dropped = 0
        """Bytes dropped because the disk was full."""
        self._descriptor = self._create(self._path)

    @staticmethod
    def _create(path: str) -> int:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)

    def append(self, data: bytes) -> None:
        """Append up to half of `STDERR_LIMIT` at once."""
        written = 0
        try:
            if self._size and self._size + len(data) > STDERR_LIMIT // 2:
                self._turn()
            written = os.write(self._descriptor, data)
        except OSError:
            pass  # the disk is full: counted below
        self._size += written
        self.dropped += len(data) - written

    def _turn(self) -> None:
        fresh = self._path + ".new"
        descriptor = self._create(fresh)
        os.replace(self._path, os.path.join(os.path.dirname(self._path), STDERR_OLD))
        os.replace(fresh, self._path)
        os.close(self._descriptor)
        self._descriptor, self._size = descriptor, 0
