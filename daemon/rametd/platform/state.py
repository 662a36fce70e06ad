"""The state directory: closed to others, and locked, so that one daemon has it, wherever its socket is.

The runtime directory depends on the environment: a shell from cron or ``su`` has another one than a desktop's. The lock in the state
directory decides, and its file tells such a shell's client where the daemon serves.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ramet.paths import STATE_LOCK, Directories, PathsError, make_private_directory, open_directory, state_holder

from rametd.domain.errors import AlreadyRunningError, RuntimeDirectoryError
from rametd.platform.locks import DirectoryLock, HeldError

PRIVATE = ("", "secrets", "logs", "agents", "commands", "index")
"""What must be closed to others, below the state directory and itself."""


def private_file(path: str, flags: int) -> int:
    """An ``opener`` for `open`: the file is created 0600. The process keeps its person's umask, which their worktrees get."""
    return os.open(path, flags, 0o600)


def close_to_others(places: Directories) -> list[str]:
    """Create the state directory and those of secrets, logs, agents, commands; sentences on each that had to be closed.

    Raises RuntimeDirectoryError for one that is not ours, or a link.
    """
    try:
        found = [make_private_directory(places.home / name) for name in PRIVATE]
    except PathsError as error:
        raise RuntimeDirectoryError(error.message, hint=error.hint) from error
    return [sentence for sentence in found if sentence]


@contextmanager
def state_lock(home: Path) -> Iterator[DirectoryLock]:
    """Hold ``home``, which exists, for this process. Raises `AlreadyRunningError` while another process holds it."""
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
            f"another daemon (pid {pid or 'unknown'}) has the state in {home} and serves at {where or 'another place'}",
            hint=f"set RAMET_RUNTIME_DIR={where.parent} to use it" if where else "stop it first",
            pid=str(pid or ""),
        ) from error
    with lock:
        yield lock
        lock.clear()
