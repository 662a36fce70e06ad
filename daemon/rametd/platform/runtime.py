"""The runtime directory: checked, locked, and the daemon's socket in it."""

import os
import socket
import stat
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from ramet.paths import PathsError, check_socket_path, open_private_directory

from rametd.domain.errors import AlreadyRunningError, RuntimeDirectoryError
from rametd.platform.locks import DirectoryLock, HeldError, holder

LOCK = "rametd.lock"
SOCKET = "rametd.sock"
BINDING = "rametd.new"
"""Name under which the socket is bound first. It is not longer than SOCKET: the length of socket
paths is limited."""


class Runtime:
    """The locked runtime directory of this process and its socket. Held until `release` or the end
    of the process.

    The socket is bound under another name, then renamed. So it is private before anyone can
    connect, and replaces a stale one atomically. When gRPC stops, it removes the path that it
    bound, and so cannot remove the socket of a later daemon.
    """

    def __init__(self, lock: DirectoryLock, start_time: float) -> None:
        self.path = lock.path
        self.socket = lock.path / SOCKET
        self.binding = lock.path / BINDING
        self._lock = lock
        self._start_time = start_time
        self._bound: os.stat_result | None = None
        self._write()

    @classmethod
    def acquire(cls, path: Path, *, start_time: float) -> Self:
        """Create, check (0700, owned by this user, no link) and lock ``path``. The socket of
        another daemon stays untouched.

        The lock file contains ``start_time`` (seconds since the epoch) for people. Raises
        RuntimeDirectoryError; AlreadyRunningError (``data["pid"]``, "" if unknown) while another
        process holds the lock.
        """
        lock = _lock(path)
        made = cls(lock, start_time)
        try:
            made._require_place()
        except RuntimeDirectoryError:
            made.release()
            raise
        return made

    def _require_place(self) -> None:
        """Raise RuntimeDirectoryError if the path of the socket is taken by anything but a
        socket."""
        with suppress(FileNotFoundError):
            mode = os.stat(SOCKET, dir_fd=self._lock.directory, follow_symlinks=False).st_mode
            if not stat.S_ISSOCK(mode):
                kind = "a directory" if stat.S_ISDIR(mode) else "not a socket"
                hint = "move it away: the daemon's socket belongs there"
                raise RuntimeDirectoryError(f"{self.socket} is {kind}", hint=hint)

    def publish(self) -> None:
        """Rename the socket bound at `binding` to its final name. Raises RuntimeDirectoryError."""
        directory = self._lock.directory
        try:
            bound = os.stat(BINDING, dir_fd=directory, follow_symlinks=False)
        except FileNotFoundError as error:
            message = f"{self.binding} is gone, though it was just bound"
            raise RuntimeDirectoryError(message, hint=f"check whether another program clears {self.path}") from error
        if not stat.S_ISSOCK(bound.st_mode) or bound.st_uid != os.getuid():
            message = f"{self.binding} is not the socket of this daemon (mode {bound.st_mode:o}, user {bound.st_uid})"
            raise RuntimeDirectoryError(message, hint="start the daemon again; another program may have created it")
        os.chmod(BINDING, 0o600, dir_fd=directory)
        self._require_place()
        os.rename(BINDING, SOCKET, src_dir_fd=directory, dst_dir_fd=directory)
        self._bound = bound

    def lost(self) -> bool:
        """Whether the published socket was removed or replaced."""
        if self._bound is None:
            return False
        try:
            return not os.path.samestat(self.socket.lstat(), self._bound)
        except OSError:
            return True

    def reopen(self) -> None:
        """Check and lock the directory again if the path names another one now. Raises as
        `acquire`."""
        with suppress(FileNotFoundError):
            if os.path.samestat(self.path.lstat(), os.fstat(self._lock.directory)):
                return
        lock = _lock(self.path)
        self._lock.release()
        self._lock = lock
        self._write()

    def release(self) -> None:
        """Remove the published socket, then release the lock.

        The order matters: after the release, a new daemon may have published its own socket.
        """
        if self._lock.directory < 0:
            return
        with suppress(FileNotFoundError):
            status = os.stat(SOCKET, dir_fd=self._lock.directory, follow_symlinks=False)
            if self._bound is not None and os.path.samestat(status, self._bound):
                os.unlink(SOCKET, dir_fd=self._lock.directory)
        self._lock.release()

    def _write(self) -> None:
        self._lock.write({"pid": os.getpid(), "start_time": self._start_time})

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()


def accepts(path: Path) -> bool:
    """Whether a process listens at the socket ``path``."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(os.fspath(path))
        except BlockingIOError:
            return True
        except OSError:
            return False
    return True


def _lock(path: Path) -> DirectoryLock:
    try:
        check_socket_path(path / SOCKET)
        directory = open_private_directory(path)
    except PathsError as error:
        raise RuntimeDirectoryError(error.message, hint=error.hint) from error
    pid = holder(directory, LOCK)
    try:
        return DirectoryLock.acquire(path, directory, LOCK, variable="RAMET_RUNTIME_DIR")
    except HeldError as error:
        message = f"another daemon holds {path / LOCK}" + (f" (pid {pid})" if pid else "")
        raise AlreadyRunningError(message, hint="use it, or stop it first: rametctl daemon stop", pid=pid) from error
