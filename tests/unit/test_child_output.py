"""Programs that print without end, and programs whose output nobody reads to its end."""

import asyncio
import gc
import os
import signal
import sys
from pathlib import Path

import pytest
from rametd.agents import inspection
from rametd.agents.inspection import inspect
from rametd.agents.presets import Preset
from rametd.domain.errors import GitFailedError
from rametd.git import process
from rametd.git.process import GitProcess
from rametd.platform import groups

from tests.support import repositories

SOON_S = 2.0
"""Less than the time that `groups.end` grants a program before SIGKILL."""
PIPE = asyncio.subprocess.PIPE


async def started(command: str) -> asyncio.subprocess.Process:
    return await groups.start("sh", "-c", command, stdin=PIPE, stdout=PIPE, stderr=PIPE)


@pytest.mark.parametrize(
    "command",
    [
        "exec yes",
        "exec yes >&2",
        "yes & exec yes >&2",
        "tr '\\0' x </dev/zero",
        "trap '' TERM; while :; do echo x; done",
    ],
    ids=["output", "errors", "both", "one endless line", "deaf"],
)
async def test_a_program_that_prints_without_end_is_ended(command: str) -> None:
    process = await started(command)
    async with asyncio.timeout(30):
        with pytest.raises(groups.OutputError, match=r"printed more than [\d,]+ bytes and was ended"):
            await groups.communicate(process, most=1 << 20)
    assert process.returncode


async def test_all_output_up_to_the_limit_and_all_input_pass() -> None:
    data = bytes(range(256)) * 4096
    assert await groups.communicate(await started("tee /dev/stderr"), data, most=len(data)) == (data, data)
    assert await groups.communicate(await started("exec true"), data) == (b"", b"")


async def test_processes_that_a_program_left_with_its_pipes_are_not_waited_for() -> None:
    process = await started("(sleep 0.5; echo late; exec sleep 60) & echo out; echo err >&2")
    async with asyncio.timeout(30):
        assert await groups.communicate(process) == (b"out\nlate\n", b"err\n")
    assert process.returncode == 0
    os.killpg(process.pid, signal.SIGKILL)


async def test_a_cancelled_call_leaves_nothing_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    process = await started("sleep 60")
    calling = asyncio.create_task(groups.communicate(process))
    await asyncio.wait({calling}, timeout=0.05)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    await groups.end(process)
    del calling
    gc.collect()
    assert caplog.text == ""


@pytest.mark.parametrize("command", ["yes", "yes >&2"])
async def test_a_program_with_unread_output_ends_at_once(command: str) -> None:
    process = await started(command)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await process.wait()
    async with asyncio.timeout(SOON_S):
        await groups.end(process)
    assert process.returncode


async def test_a_server_that_talks_without_end_is_an_error(tmp_path: Path) -> None:
    environment = repositories.git_environment(tmp_path / "home")
    sample = repositories.plain(tmp_path / "repo", environment)
    server = tmp_path / "ssh"
    server.write_text("#!/bin/sh\nexec yes 'remote: more' >&2\n")
    server.chmod(0o755)
    git = GitProcess({**environment, "GIT_SSH": str(server), "GIT_SSH_VARIANT": "simple"})
    async with asyncio.timeout(30):
        with pytest.raises(GitFailedError, match="git ls-remote printed more than"):
            await git.run(sample.path, "ls-remote", "ssh://example.org/x")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")
@pytest.mark.parametrize("name", [".gitignore", ".gitattributes", "nested/.git/config"])
async def test_git_does_not_wait_for_ever_for_a_pipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(process, "PATIENCE_S", 0.5)
    sample = repositories.plain(tmp_path / "repo", repositories.git_environment(tmp_path / "home"))
    git = GitProcess(sample.environment)
    await git.write(sample.path, "init", "-q", str(sample.path / "nested"))
    (sample.path / name).unlink(missing_ok=True)
    os.mkfifo(sample.path / name)
    async with asyncio.timeout(30):
        with pytest.raises(GitFailedError, match="waits for a file that does not end"):
            await git.run(sample.path, "add", "-A")


async def test_a_program_that_waits_for_its_child_or_is_busy_is_not_stuck() -> None:
    for command in ("sleep 1.5; echo done", "timeout 1.5 sh -c 'while :; do :; done'; echo done"):
        assert await groups.communicate(await started(command), patience=0.4) == (b"done\n", b"")


@pytest.mark.parametrize("flood", ["exec yes", "tr '\\0' x </dev/zero"])
async def test_an_agent_that_prints_without_end_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flood: str
) -> None:
    monkeypatch.setattr(inspection, "START_S", 0.5)
    program = tmp_path / "agent"
    program.write_text(f'#!/bin/sh\n[ "$1" = --version ] && exec echo 1.0\n{flood}\n')
    program.chmod(0o755)
    path = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    async with asyncio.timeout(30):
        found = await inspect(Preset("agent", "Agent", ("agent", "acp"), {}), path, start=True)
    assert (found.version, bool(found.problem)) == ("1.0", True)
