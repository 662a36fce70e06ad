"""The runtime directory and the one lock that makes a daemon the only one.

``flock`` alone decides: a lock dies with its holder, a pid file does not. What stands in the lock file is for people.
"""

import fcntl
import json
import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from ramet.paths import PathsError, check_socket_path, open_private_directory

from rametd.domain.errors import AlreadyRunningError, RuntimeDirectoryError

LOCK = "rametd.lock"
SOCKET = "rametd.sock"


class RuntimeLock:
    """The runtime directory, checked and locked. Held until ``release`` or the end of the process."""

    def __init__(self, path: Path, directory: int, lock: int) -> None:
        self.path = path
        self.socket = path / SOCKET
        self._directory = directory
        self._lock = lock

    @classmethod
    def acquire(cls, path: Path, *, start_time: float) -> Self:
        """Make and check ``path`` (0700, ours, no symlink), lock it, and clear a stale socket away.

        ``start_time`` (seconds since the epoch) goes into the lock file for people. Raises RuntimeDirectoryError, and
        AlreadyRunningError (``data["pid"]``, "" where unknown) while another process holds the lock.
        """
        try:
            check_socket_path(path / SOCKET)
            directory = open_private_directory(path)
        except PathsError as error:
            raise RuntimeDirectoryError(error.message, hint=error.hint) from error
        with ExitStack() as undo:
            undo.callback(os.close, directory)
            lock = _lock(path, directory)
            undo.callback(os.close, lock)
            _write(lock, json.dumps({"pid": os.getpid(), "start_time": start_time}))
            _remove_stale_socket(path, directory)
            undo.pop_all()
        return cls(path, directory, lock)

    def check_socket(self) -> None:
        """After binding: raise RuntimeDirectoryError unless the socket is there, ours, and closed to everybody else."""
        try:
            status = os.stat(SOCKET, dir_fd=self._directory, follow_symlinks=False)
        except FileNotFoundError as error:
            message = f"{self.socket} is gone although it was just bound"
            raise RuntimeDirectoryError(message, hint=f"is something else clearing {self.path}?") from error
        if not stat.S_ISSOCK(status.st_mode) or status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) & 0o077:
            message = f"{self.socket} is not a private socket (mode {status.st_mode:o}, user {status.st_uid})"
            raise RuntimeDirectoryError(message, hint="start the daemon again; it may be that another program made it")

    def release(self) -> None:
        """Remove the socket, then give the lock up. The lock file stays: removing it would let two processes lock two files.

        The socket goes first, while the lock is ours: a daemon that starts in between would have made its own.
        """
        if self._lock < 0:
            return
        with suppress(FileNotFoundError):
            os.unlink(SOCKET, dir_fd=self._directory)
        os.close(self._lock)
        os.close(self._directory)
        self._lock = self._directory = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()


@contextmanager
def socket_umask() -> Iterator[None]:
    """Bind inside: the socket is then born 0600. The umask is the process's, so let nothing else create files meanwhile."""
    before = os.umask(0o177)
    try:
        yield
    finally:
        os.umask(before)


def _lock(path: Path, directory: int) -> int:
    while True:
        try:
            descriptor = os.open(LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=directory)
        except OSError as error:
            message = f"{path / LOCK} cannot be opened: {error.strerror}"
            raise RuntimeDirectoryError(message, hint=f"move {path / LOCK} away, or set RAMET_RUNTIME_DIR") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            pid = _holder(descriptor)
            os.close(descriptor)
            message = f"another daemon holds {path / LOCK}" + (f" (pid {pid})" if pid else "")
            raise AlreadyRunningError(
                message, hint="use it, or stop it first: rametctl daemon stop", pid=pid
            ) from error
        # A process that opened the file, was overtaken by somebody who deleted it, and locks it then holds a lock that no
        # later daemon will ever see. Only a lock on the file that the name still leads to counts.
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), os.stat(LOCK, dir_fd=directory, follow_symlinks=False)):
                return descriptor
        os.close(descriptor)


def _holder(descriptor: int) -> str:
    """The pid in the lock file, "" where none is readable.

    Between the holder's flock and its write the file is empty or tells of the holder before it: good enough for a message,
    and the reason why nothing is ever decided by it and no signal is sent to it.
    """
    try:
        return str(int(json.loads(os.pread(descriptor, 4096, 0))["pid"]))
    except (ValueError, KeyError, TypeError):
        return ""


def _write(descriptor: int, text: str) -> None:
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{text}\n".encode(), 0)


def _remove_stale_socket(path: Path, directory: int) -> None:
    """Only called with the lock held: a socket that is there then has no daemon behind it."""
    try:
        mode = os.stat(SOCKET, dir_fd=directory, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        kind = "a directory" if stat.S_ISDIR(mode) else "not a socket"
        message = f"{path / SOCKET} is {kind}"
        raise RuntimeDirectoryError(message, hint="move it away, the daemon's socket goes there")
    os.unlink(SOCKET, dir_fd=directory)
