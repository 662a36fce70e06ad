"""One writer at a time per repository, in this process and between processes."""

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from rametd.domain.errors import GitBusyError, GitFailedError
from rametd.git.repository import common_dir
from rametd.git.sharing import share

DIRECTORY: Final = "ramet"
"""Ramet's directory inside a common git directory: the lock, private indexes, and directories about
to be deleted."""


class RepositoryLocks:
    """A lock per common git directory.

    There are two layers. An `asyncio.Lock` orders the tasks of this daemon: with flock, which is
    per open file, they would have to poll. A flock on ``<common>/ramet/lock`` excludes a second
    daemon (with another RAMET_HOME, or an old one that is still stopping), whose `worktree add`
    could run between our check and our change.
    """

    def __init__(self, timeout: float = 10.0) -> None:
        self._timeout = timeout
        self._locks: dict[Path, asyncio.Lock] = {}

    @asynccontextmanager
    async def hold(self, common_dir: Path) -> AsyncIterator[int]:
        """Hold the repository's lock; yield its descriptor, for git to inherit. Raise GitBusyError
        if another process holds it for ``timeout`` seconds."""
        async with self._locks.setdefault(common_dir, asyncio.Lock()):
            file = common_dir / DIRECTORY / "lock"
            await asyncio.to_thread(_make, file)
            # Open it here, not in the thread: a cancellation would lose the thread's result, and
            # leak the descriptor.
            try:
                descriptor = os.open(file, os.O_RDWR | os.O_CLOEXEC)
            except OSError as error:
                raise _unwritable(common_dir, error) from error
            try:
                await self._flock(descriptor, common_dir)
                yield descriptor
            finally:
                os.close(descriptor)

    async def _flock(self, descriptor: int, common_dir: Path) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeout
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if loop.time() > deadline:
                    raise GitBusyError(
                        f"another daemon holds the lock of {common_dir}",
                        hint="look for a second rametd, or try again",
                        file=str(common_dir / DIRECTORY / "lock"),
                    ) from None
                await asyncio.sleep(0.02)
            else:
                return


def _make(file: Path) -> None:
    git_dir = file.parent.parent
    try:
        if not file.exists():
            file.parent.mkdir(exist_ok=True)
            file.touch(mode=0o600)
            # Another person's daemon takes the same lock. A worktree's own lock is below its entry.
            share(common_dir(git_dir), file.parent)
    except OSError as error:
        raise _unwritable(git_dir, error) from error


def _unwritable(common_dir: Path, error: OSError) -> GitFailedError:
    return GitFailedError(f"cannot write in {common_dir}: {error.strerror}", hint="the repository must be writable")
