"""The daemon's socket, verified to be ours before any byte is sent.

If the runtime directory is below a shared temporary directory, another user may have created it
first, with a program of theirs listening there. So the directory must belong to this user and be
closed to others, and the listening process must run as this user.

A check of a path proves nothing about the next ``connect`` to it, and gRPC reconnects by itself.
Therefore the check uses a descriptor of the directory, and gRPC gets an address *through* that
descriptor (``/proc/self/fd/N/rametd.sock``): even if others rename or link meanwhile, every
connection ends in the checked directory, where only this user can create a socket. macOS has no
such addresses. There the client uses the path without symbolic links, and requires that no other
user can exchange entries of an ancestor.
"""

import os
import socket
import stat
import struct
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Self
from urllib.parse import quote

from ramet.paths import PathsError, check_private, check_socket_path, open_directory

from rametctl.errors import UnreachableError

MOVE = "set RAMET_RUNTIME_DIR to a place you own"
DESCRIPTORS = "/proc/self/fd"
SOL_LOCAL, LOCAL_PEERCRED = 0, 1  # macOS: sys/un.h
XUCRED = struct.Struct("II")  # version and user of a struct xucred; its groups follow


class Listener:
    """A socket on which a process of this user listens; ``directory`` is the descriptor of the
    runtime directory."""

    def __init__(self, path: Path, directory: int) -> None:
        self.path = path
        self._directory = directory

    @classmethod
    def find(cls, path: Path) -> Self | None:
        """Return the listener at the socket ``path``; None if no process listens.

        Raises UnreachableError (reason RUNTIME_DIRECTORY) for a directory, a socket or a process
        that is not ours.
        """
        try:
            check_socket_path(path)
            directory = open_directory(path.parent)
        except PathsError as error:
            raise unreachable(error) from error
        if directory is None:
            return None
        found = cls(path, directory)
        with ExitStack() as undo:
            undo.callback(found.close)
            found._check_directory()
            if found._accepts() and found.check():
                undo.pop_all()
                return found
        return None

    def check(self) -> bool:
        """Return whether the socket exists. Raise UnreachableError unless it and its directory are
        ours and closed to others."""
        self._check_directory()
        try:
            status = os.stat(self.path.name, dir_fd=self._directory, follow_symlinks=False)
        except FileNotFoundError:
            return False
        if not stat.S_ISSOCK(status.st_mode):
            raise _refused(f"{self.path} is not a socket", hint="move it away: the daemon's socket belongs there")
        if status.st_uid != os.getuid():
            raise _refused(f"{self.path} belongs to user {status.st_uid}, not to you")
        if (mode := stat.S_IMODE(status.st_mode)) & 0o077:
            raise _refused(f"{self.path} is open to others (mode {mode:04o})", hint=f"run: chmod 600 {self.path}")
        return True

    @property
    def address(self) -> str:
        """Address for gRPC. Valid until `close`."""
        return f"unix:{quote(os.fspath(self._reach()))}"

    def close(self) -> None:
        directory, self._directory = self._directory, -1
        if directory >= 0:
            os.close(directory)

    def _check_directory(self) -> None:
        try:
            check_private(self.path.parent, self._directory)
        except PathsError as error:
            raise unreachable(error) from error

    def _accepts(self) -> bool:
        """Return whether a process listens, even one that cannot answer now. Raise UnreachableError
        if it is not ours."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.setblocking(False)  # the queue of a stopped process may be full, and `connect` would block forever
            try:
                probe.connect(os.fspath(self._reach()))
            except BlockingIOError:
                return True  # not connected, so the process has no credentials yet; the directory vouches for it
            except (FileNotFoundError, ConnectionRefusedError):
                return False
            except OSError as error:
                message = f"the socket {self.path} cannot be used: {error.strerror}"
                raise UnreachableError(message, hint="is RAMET_RUNTIME_DIR right, and yours?") from error
            uid = peer_uid(probe)
        if uid != os.getuid():
            raise _refused(f"the process that listens at {self.path} runs as user {uid}, not as you")
        return True

    def _reach(self) -> Path:
        through = Path(DESCRIPTORS, str(self._directory))
        try:
            if os.path.samestat(through.stat(), os.fstat(self._directory)):
                return through / self.path.name
        except OSError:
            pass  # a system without /proc
        real = self.path.parent.resolve()
        if not os.path.samestat(real.stat(), os.fstat(self._directory)):
            raise _refused(f"{self.path.parent} was exchanged for another directory")
        for ancestor in real.parents:
            status = ancestor.stat()
            if status.st_uid not in {0, os.getuid()} or (status.st_mode & 0o022 and not status.st_mode & stat.S_ISVTX):
                raise _refused(f"others can exchange entries of {ancestor}, which contains {self.path.parent}")
        return real / self.path.name


def listens(path: Path) -> bool:
    """Return whether a process of ours accepts connections at the socket ``path``. Raise
    UnreachableError as `Listener.find` does."""
    found = Listener.find(path)
    if found is not None:
        found.close()
    return found is not None


def peer_uid(connected: socket.socket) -> int:
    """Return the user of the process at the other end."""
    if sys.platform == "darwin":
        _, uid = XUCRED.unpack_from(connected.getsockopt(SOL_LOCAL, LOCAL_PEERCRED, 128))
        return int(uid)
    _, uid, _ = struct.unpack("3i", connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    return int(uid)


def unreachable(error: PathsError) -> UnreachableError:
    return UnreachableError(error.message, hint=error.hint, reason="RUNTIME_DIRECTORY")


def _refused(message: str, *, hint: str = MOVE) -> UnreachableError:
    return UnreachableError(message, hint=hint, reason="RUNTIME_DIRECTORY")
