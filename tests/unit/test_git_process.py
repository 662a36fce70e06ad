"""Running git: environment, errors, lock files, cancellation."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from rametd.domain.errors import GitBusyError, GitFailedError
from rametd.git.process import GitProcess, clean_environment

from tests.support import repositories
from tests.support.eventually import eventually


def test_variables_that_redirect_git_are_dropped_except_chosen_ones() -> None:
    given = {
        "PATH": "/bin",
        "GIT_DIR": "/x",
        "GIT_INDEX_FILE": "/y",
        "GIT_SSH_COMMAND": "ssh -v",
        "LC_ALL": "de_DE.UTF-8",
    }

    assert clean_environment(given) == {
        "PATH": "/bin",
        "GIT_SSH_COMMAND": "ssh -v",
        "LC_ALL": "C",
        "GIT_TERMINAL_PROMPT": "0",
    }


async def test_an_error_holds_gits_own_words(tmp_path: Path) -> None:
    git = GitProcess(repositories.git_environment(tmp_path / "home"))

    with pytest.raises(GitFailedError, match=r"git rev-parse: not a git repository") as caught:
        await git.read(tmp_path, "rev-parse", "HEAD")

    assert caught.value.data == {"command": "rev-parse"}


async def test_a_reason_that_git_prints_to_standard_output_is_in_the_error(tmp_path: Path) -> None:
    sample = repositories.plain(tmp_path / "repo", repositories.git_environment(tmp_path / "home"))

    with pytest.raises(GitFailedError, match="nothing to commit"):
        await GitProcess(sample.environment).write(sample.path, "commit", "-m", "x")


async def test_a_filter_whose_program_is_missing_is_named(tmp_path: Path) -> None:
    sample = repositories.plain(tmp_path / "repo", repositories.git_environment(tmp_path / "home"))
    sample.write(".gitattributes", "*.bin filter=gone\n")
    sample.write("x.bin")
    sample.commit("attributes")
    sample.git("config", "filter.gone.process", "no-such-filter filter-process")
    sample.git("config", "filter.gone.required", "true")
    (sample.path / "x.bin").unlink()

    with pytest.raises(GitFailedError, match=r"no-such-filter: .*not found"):
        await GitProcess(sample.environment).write(sample.path, "checkout", "--", "x.bin")


async def test_a_missing_git_is_named(tmp_path: Path) -> None:
    git = GitProcess({"PATH": str(tmp_path)})

    with pytest.raises(GitFailedError, match="git was not found"):
        await git.read(tmp_path, "version")


async def test_a_missing_directory_is_not_a_missing_git(tmp_path: Path) -> None:
    git = GitProcess(repositories.git_environment(tmp_path / "home"))

    with pytest.raises(GitFailedError, match="cannot change to"):
        await git.read(tmp_path / "gone", "status")


@pytest.mark.parametrize(
    ("lock", "command"),
    [
        ("index.lock", ("add", "-A")),
        ("config.lock", ("config", "a.b", "c")),
        ("packed-refs.lock", ("update-ref", "-d", "refs/heads/packed")),
        ("refs/heads/main.lock", ("update-ref", "refs/heads/main", "HEAD~1")),
    ],
)
async def test_a_lock_file_that_stays_is_named(tmp_path: Path, lock: str, command: tuple[str, ...]) -> None:
    environment = repositories.git_environment(tmp_path / "home")
    sample = repositories.plain(tmp_path / "repo", environment)
    sample.git("branch", "packed")
    sample.git("pack-refs", "--all")
    sample.git("config", "core.packedRefsTimeout", "10")
    held = sample.write(f".git/{lock}", "")

    with pytest.raises(GitBusyError) as caught:
        await GitProcess(environment, lock_timeout=0.05).write(sample.path, *command)

    assert caught.value.data["file"] == str(held)


async def test_a_lock_file_is_waited_for(tmp_path: Path) -> None:
    environment = repositories.git_environment(tmp_path / "home")
    sample = repositories.plain(tmp_path / "repo", environment)
    held = sample.write(".git/index.lock", "")
    sample.write("new")

    asyncio.get_running_loop().call_later(0.1, held.unlink)
    await GitProcess(environment).write(sample.path, "add", "-A")

    assert sample.git("status", "--porcelain") == "A  new"


def runs(pid: int) -> bool:
    """Return whether a process still runs; init may reap an ended one late."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


async def test_cancelling_ends_git_and_its_children(tmp_path: Path) -> None:
    environment = repositories.git_environment(tmp_path / "home")
    sample = repositories.plain(tmp_path / "repo", environment)
    pids = tmp_path / "pid"
    alias = f"alias.hang=!echo $$ > {pids}; exec sleep 600"

    task = asyncio.create_task(GitProcess(environment).run(sample.path, "-c", alias, "hang"))
    pid = await eventually(lambda: pids.exists() and pids.read_text().strip())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    await eventually(lambda: not runs(int(str(pid))))


def alive(group: int) -> bool:
    """Return whether the group has a process that is no zombie."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return any(runs(each.pid) for each in psutil.process_iter() if group_of(each.pid) == group)


def group_of(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return 0


async def test_cancelling_while_git_starts_ends_git_and_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cancel after the fork and before asyncio has connected the pipes."""
    environment = repositories.git_environment(tmp_path / "home")
    sample = repositories.plain(tmp_path / "repo", environment)
    loop = asyncio.get_running_loop()
    execute = loop.subprocess_exec
    pids: list[int] = []

    async def cancelled(protocol: Callable[[], Any], *argv: Any, **options: Any) -> Any:
        def started() -> Any:  # asyncio forks right after this call, in the same iteration of the loop
            loop.call_soon(task.cancel)
            return protocol()

        transport, made = await execute(started, *argv, **options)
        pids.append(transport.get_pid())
        return transport, made

    monkeypatch.setattr(loop, "subprocess_exec", cancelled)
    task = asyncio.create_task(GitProcess(environment).run(sample.path, "-c", "alias.hang=!sleep 600", "hang"))
    async with asyncio.timeout(30):
        with pytest.raises(asyncio.CancelledError):
            await task

    [group] = pids
    await eventually(lambda: not alive(group))
