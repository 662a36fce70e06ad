"""The one lock that keeps two daemons off one state, wherever their sockets are.

The runtime directory depends on the environment: a shell from cron or ``su`` has another one than a desktop's. The lock in the state
directory decides, and tells such a shell's client where the daemon is.
"""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ramet.paths import STATE_LOCK, state_holder

from rametd.domain.errors import AlreadyRunningError, RuntimeDirectoryError


@contextmanager
def state_lock(home: Path, socket: Path) -> Iterator[None]:
    """Hold ``home`` for this process; ``socket`` is told to others. Raises `AlreadyRunningError` while another process holds it."""
    path = home / STATE_LOCK
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise RuntimeDirectoryError(
            f"{path} cannot be opened: {error.strerror}", hint="set RAMET_HOME to a directory that is yours"
        ) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            pid, where = state_holder(home)
            raise AlreadyRunningError(
                f"another daemon (pid {pid or 'unknown'}) has the state in {home} and serves at {where or 'another place'}",
                hint=f"set RAMET_RUNTIME_DIR={where.parent} to use it" if where else "stop it first",
                pid=str(pid or ""),
            ) from error
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps({"pid": os.getpid(), "socket": str(socket)}).encode(), 0)
        yield
        os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)
