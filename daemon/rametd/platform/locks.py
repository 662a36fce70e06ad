"""Exclusive locks on directories: `flock` alone decides, and it dies with its holder. The files' contents are for people."""

import errno
import fcntl
import json
import os
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from rametd.domain.errors import RuntimeDirectoryError


class HeldError(Exception):
    """Another process holds the lock."""


class DirectoryLock:
    """A lock on an open directory and on the file ``name`` in it. Held until `release` or the end of the process.

    Both are locked because the file can be deleted under its holder, and the directory cannot be locked everywhere (NFS).
    A locked directory is also spared by systemd-tmpfiles, which clears what nobody uses in the temporary directory.
    """

    def __init__(self, path: Path, directory: int, file: int) -> None:
        self.path = path
        self.directory = directory
        self._file = file

    @classmethod
    def acquire(cls, path: Path, directory: int, name: str, *, variable: str) -> Self:
        """Lock ``path``, of which ``directory`` is a descriptor; the lock owns it from then on.

        Raises HeldError, and RuntimeDirectoryError where the file cannot be opened; the descriptor is closed then.
        """
        file = -1
        try:
            try:
                fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise HeldError from error
            except OSError as error:
                if error.errno not in {errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.ENOTSUP}:
                    raise
            while file < 0:
                file = _lock_file(path, directory, name, variable)
        except BaseException:
            os.close(directory)
            raise
        return cls(path, directory, file)

    def write(self, record: dict[str, object]) -> None:
        """What people, and `rametctl`, may read in the file."""
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, f"{json.dumps(record)}\n".encode(), 0)

    def clear(self) -> None:
        os.ftruncate(self._file, 0)

    def release(self) -> None:
        """The file stays: if it were removed, two processes could lock two files."""
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


def _lock_file(path: Path, directory: int, name: str, variable: str) -> int:
    """A locked descriptor of the file, -1 where it was deleted meanwhile."""
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
    # A process that opens the file and locks it after another one has deleted it holds a lock that no later daemon will
    # ever see. Only a lock on the file that the name still leads to counts.
    with suppress(FileNotFoundError):
        if os.path.samestat(os.fstat(descriptor), os.stat(name, dir_fd=directory, follow_symlinks=False)):
            return descriptor
    os.close(descriptor)
    return -1


def holder(directory: int, name: str) -> str:
    """The pid in the lock file, "" where none is readable: for messages, never for decisions or signals.

    Between the holder's flock and its write the file is empty, or names the holder before it.
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
