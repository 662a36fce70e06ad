"""The state directory: private, and locked for one daemon, wherever its socket is.

The runtime directory depends on the environment: a shell from cron or ``su`` has another one than a
desktop session. So the lock in the state directory decides, and from its file clients in such a
shell learn where the daemon serves.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ramet.paths import STATE_LOCK, Directories, PathsError, make_private_directory, open_directory, state_holder

from rametd.domain.errors import AlreadyRunningError, RuntimeDirectoryError
from rametd.platform.locks import DirectoryLock, HeldError

PRIVATE = ("", "secrets", "logs", "agents", "commands", "index")
"""Directories that must be private: the state directory and some in it."""


def private_file(path: str, flags: int) -> int:
    """An ``opener`` for `open` that creates files with mode 0600. The process keeps the person's
    umask, for worktrees."""
    return os.open(path, flags, 0o600)


def make_private(places: Directories) -> list[str]:
    """Create the directories in PRIVATE; return a warning for each whose mode had to be changed.

    Raises RuntimeDirectoryError if one is a link or belongs to another user.
    """
    try:
        found = [make_private_directory(places.home / name) for name in PRIVATE]
    except PathsError as error:
        raise RuntimeDirectoryError(error.message, hint=error.hint) from error
    return [sentence for sentence in found if sentence]


@contextmanager
def state_lock(home: Path) -> Iterator[DirectoryLock]:
    """Hold ``home``, which exists, for this process. Raises `AlreadyRunningError` while another
    process holds it."""
    try:
        directory = open_directory(home, variable="RAMET_HOME")
    except PathsError as error:
        raise RuntimeDirectoryError(error.message, hint=error.hint) from error
    if directory is None:
        raise RuntimeDirectoryError(f"{home} was removed", hint="start the daemon again")
    pid, where = state_holder(home)
    try:
        lock = DirectoryLock.acquire(home, directory, STATE_LOCK, variable="RAMET_HOME")
    except HeldError as error:
        raise AlreadyRunningError(
            f"another daemon (pid {pid or 'unknown'}) uses the state in {home} and serves at {where or 'another path'}",
            hint=f"set RAMET_RUNTIME_DIR={where.parent} to use it" if where else "stop it first",
            pid=str(pid or ""),
        ) from error
    with lock:
        yield lock
        lock.clear()
