"""Exclusive locks on directories. Only `flock` decides; the kernel releases it when its holder
ends. The files' contents are for people."""

import errno
import fcntl
import json
import os
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from rametd.domain.errors import RuntimeDirectoryError
from rametd.platform import processes

GRACE_S = 2.0
"""Seconds for which a lock may outlive its holder. Between fork and exec, a program that the holder
starts has copies of its descriptors, and a SIGKILL of the holder does not end that program."""
PAUSE_S = 0.01


class HeldError(Exception):
    """Another process holds the lock."""


class DirectoryLock:
    """A lock on an open directory and on the file ``name`` in it. Held until `release` or the end
    of the process.

    It locks both because the file can be deleted while the lock is held, and some file systems
    (NFS) cannot lock directories. Also, systemd-tmpfiles does not clean up a locked directory.
    """

    def __init__(self, path: Path, directory: int, file: int) -> None:
        self.path = path
        self.directory = directory
        self._file = file

    @classmethod
    def acquire(cls, path: Path, directory: int, name: str, *, variable: str) -> Self:
        """Lock ``path``. ``directory`` is a descriptor of it, which the lock now owns, and closes
        if this raises.

        Raises HeldError; RuntimeDirectoryError if the file cannot be opened.
        """
        deadline = time.monotonic() + GRACE_S
        with ExitStack() as undo:
            undo.callback(os.close, directory)
            while True:
                try:
                    file = _lock_both(path, directory, name, variable)
                    break
                except HeldError:
                    if not _holder_ended(directory, name) or time.monotonic() > deadline:
                        raise
                    time.sleep(PAUSE_S)
            undo.pop_all()
        return cls(path, directory, file)

    def write(self, record: dict[str, object]) -> None:
        """Write ``record`` to the file, for people and `rametctl`."""
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, f"{json.dumps(record)}\n".encode(), 0)

    def clear(self) -> None:
        os.ftruncate(self._file, 0)

    def release(self) -> None:
        """Unlock. The file stays: if it were removed, two processes could lock two files of that
        name."""
        file, directory = self._file, self.directory
        self._file = self.directory = -1
        for descriptor in (file, directory):
            if descriptor >= 0:
                os.close(descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()


def _lock_both(path: Path, directory: int, name: str, variable: str) -> int:
    """Lock ``directory`` and the file in it; return the file's descriptor. Raises HeldError."""
    try:
        fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise HeldError from error
    except OSError as error:
        if error.errno not in {errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.ENOTSUP}:
            raise
    file = -1
    while file < 0:
        file = _lock_file(path, directory, name, variable)
    return file


def _holder_ended(directory: int, name: str) -> bool:
    """Whether the file names a process that has ended. Between taking the lock and writing the
    record, it names none."""
    pid = holder(directory, name)
    process = processes.find(int(pid)) if pid else None
    return bool(pid) and (process is None or process.zombie)


def _lock_file(path: Path, directory: int, name: str, variable: str) -> int:
    """Return a locked descriptor of the file; -1 if the file was deleted meanwhile."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(name, flags, 0o600, dir_fd=directory)
    except OSError as error:
        message = f"{path / name} cannot be opened: {error.strerror}"
        raise RuntimeDirectoryError(message, hint=f"move {path / name} away, or set {variable}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise HeldError from error
    # If another process deletes the file between open and flock, this lock is on a file that no
    # later daemon will open. Only a lock on the file that still has the name counts.
    with suppress(FileNotFoundError):
        if os.path.samestat(os.fstat(descriptor), os.stat(name, dir_fd=directory, follow_symlinks=False)):
            return descriptor
    os.close(descriptor)
    return -1


def holder(directory: int, name: str) -> str:
    """Pid in the lock file, "" if none is readable. Use it for messages and for the length of a
    wait, never for signals.

    Between the holder's flock and its write, the file is empty or names the previous holder.
    """
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    except OSError:
        return ""
    try:
        return str(int(json.loads(os.pread(descriptor, 4096, 0))["pid"]))
    except (ValueError, KeyError, TypeError):
        return ""
    finally:
        os.close(descriptor)
