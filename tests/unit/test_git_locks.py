"""The repository's lock: between tasks, and between processes."""

import asyncio
import fcntl
import os
from pathlib import Path

import pytest
from rametd.domain.errors import GitBusyError, GitFailedError
from rametd.git.locks import RepositoryLocks
from rametd.git.process import GitProcess

from tests.support import repositories
from tests.support.eventually import eventually


async def test_tasks_take_turns(tmp_path: Path) -> None:
    locks = RepositoryLocks()
    inside = 0

    async def visit() -> None:
        nonlocal inside
        async with locks.hold(tmp_path):
            inside += 1
            assert inside == 1
            await asyncio.sleep(0)
            inside -= 1

    await asyncio.gather(*(visit() for _ in range(20)))


async def test_repositories_do_not_wait_for_each_other(tmp_path: Path) -> None:
    locks = RepositoryLocks()
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()

    async with locks.hold(tmp_path / "a"), locks.hold(tmp_path / "b"):
        pass


async def test_another_process_is_waited_for_and_then_named(tmp_path: Path) -> None:
    (tmp_path / "ramet").mkdir()
    with (tmp_path / "ramet" / "lock").open("w") as other:  # a separate open file counts like another process
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(GitBusyError, match="another daemon holds the lock"):
            async with RepositoryLocks(timeout=0.05).hold(tmp_path):
                raise AssertionError("entered")

        asyncio.get_running_loop().call_later(0.05, fcntl.flock, other, fcntl.LOCK_UN)
        async with RepositoryLocks().hold(tmp_path):
            pass


async def test_a_git_that_outlives_its_daemon_keeps_the_lock(tmp_path: Path) -> None:
    environment = repositories.git_environment(tmp_path / "home")
    sample = repositories.plain(tmp_path / "repo", environment)
    common = sample.path / ".git"
    go = tmp_path / "go"
    os.mkfifo(go)
    alias = f"alias.slow=!cat {go}"
    async with RepositoryLocks().hold(common) as lock:
        task = asyncio.create_task(GitProcess(environment).run(common, "-c", alias, "slow", lock=lock))
        # Opening a pipe for writing without waiting succeeds once its reader is there: git runs,
        # and has the lock.
        writer = await eventually(lambda: _open_writer(go))
    # The daemon's descriptor is closed, as if it were killed.

    with pytest.raises(GitBusyError):
        async with RepositoryLocks(timeout=0.05).hold(common):
            raise AssertionError("entered")
    os.close(writer)
    await task
    async with RepositoryLocks().hold(common):
        pass


def _open_writer(pipe: Path) -> int:
    try:
        return os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return 0


async def test_a_repository_that_cannot_be_written_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "ramet").write_text("in the way")

    with pytest.raises(GitFailedError, match="cannot write in"):
        async with RepositoryLocks().hold(tmp_path):
            raise AssertionError("entered")


async def test_a_lock_that_cannot_be_opened_is_a_clear_error(tmp_path: Path) -> None:
    """As on a file system that was mounted again, read-only."""
    (tmp_path / "ramet" / "lock").mkdir(parents=True)
    with pytest.raises(GitFailedError, match="cannot write in"):
        async with RepositoryLocks().hold(tmp_path):
            pass
