"""Start of an agent: leftovers, the agent's descriptors and environment, and exact errors."""

# ruff: noqa: ASYNC221
# A test may block its loop for a moment.

import asyncio
import os
import resource
import subprocess
import sys
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
from rametd.domain.errors import (
    AgentUnavailableError,
    BadNameError,
    InvalidInputError,
    KeeperError,
    RuntimeDirectoryError,
    WorkingDirectoryError,
    WrongStateError,
)
from rametd.keeper import directory
from rametd.keeper.executor import Liveness
from rametd.keeper.local import LocalExecutor
from rametd.platform import processes

from tests.support.eventually import eventually
from tests.support.keepers import (
    ECHO,
    agent,
    journal_bytes,
    keeper_path,
    next_line,
    private_executor,
    resident_kib,
    rest_of,
    run_record,
)


@pytest.fixture
async def executor() -> AsyncIterator[LocalExecutor]:
    async with private_executor() as executor:
        yield executor


async def test_a_keeper_is_nobodys_child_in_its_own_session_and_small(executor: LocalExecutor, tmp_path: Path) -> None:
    handle = await executor.start(agent(ECHO, tmp_path))
    run = run_record(handle)
    keeper = processes.find(run["keeper_pid"])
    assert keeper is not None

    assert keeper.parent != os.getpid()
    assert os.getsid(keeper.pid) not in (os.getsid(0), keeper.pid)
    assert os.getsid(run["agent_pid"]) == run["agent_pid"]
    assert resident_kib(keeper.pid) <= 12 << 10
    assert Path(f"/proc/{keeper.pid}/cwd").resolve() == Path("/")
    assert Path(f"/proc/{keeper.pid}/fd/0").resolve() == Path("/dev/null")
    assert Path(f"/proc/{keeper.pid}/environ").read_bytes() in (b"", b"LC_CTYPE=C.UTF-8\0")  # Python's own


async def test_the_keeper_imports_the_standard_library_and_its_own_files_only() -> None:
    code = (
        "import sys; sys.path.append(sys.argv[1]); import rametd.keeper.server, rametd.keeper.child, rametd.keeper.program;"
        "print(*sorted(sys.modules))"
    )
    root = Path(directory.__file__).parents[2]
    modules = subprocess.run([sys.executable, "-I", "-S", "-c", code, root], capture_output=True, text=True, check=True)
    names = set(modules.stdout.split())

    assert {name for name in names if name.startswith("ramet")} == {
        "rametd",
        "rametd.keeper",
        "rametd.platform",
        "rametd.platform.processes",
        *(f"rametd.keeper.{name}" for name in ("child", "control", "directory", "framing", "peer", "pipes")),
        *(f"rametd.keeper.{name}" for name in ("program", "segments", "server", "tree")),
    }
    assert not names & {"asyncio", "ctypes", "dataclasses", "logging", "pathlib", "subprocess", "tempfile", "typing"}


async def test_the_agent_gets_its_own_directory_and_exactly_its_environment(
    executor: LocalExecutor, tmp_path: Path
) -> None:
    script = """
        import os, signal
        print(os.getcwd())
        print(sorted(os.environ.items()))
        print([s.name for s in (signal.SIGHUP, signal.SIGTERM, signal.SIGCHLD) if signal.getsignal(s) != signal.SIG_DFL])
        print(sorted(int(fd) for fd in os.listdir("/proc/self/fd"))[:4])
    """
    handle = await executor.start(agent(script, tmp_path, environment={"A": "1 = 2\n", "RAMET_SESSION": "forged"}))
    attachment = await executor.attach(handle, epoch=1, offset=0)

    lines = [line.data.decode().strip() for line in await rest_of(attachment)]

    assert lines[0] == str(tmp_path)
    variables = [("A", "1 = 2\n"), ("RAMET_KEEPER", str(keeper_path(handle))), ("RAMET_SESSION", "s")]
    assert [pair for pair in eval(lines[1]) if pair[0] != "LC_CTYPE"] == variables  # noqa: S307 -- our own script's words
    assert lines[2] == "[]"
    assert lines[3] == "[0, 1, 2, 3]"
    await attachment.close()


async def test_secrets_are_in_one_private_file_only(executor: LocalExecutor, tmp_path: Path) -> None:
    handle = await executor.start(agent(ECHO, tmp_path, environment={"TOKEN": "s3cr3t"}))
    path = keeper_path(handle)

    assert path.stat().st_mode & 0o777 == 0o700
    assert Path(run_record(handle)["socket"]).stat().st_mode & 0o777 == 0o600
    assert {file.stat().st_mode & 0o777 for file in path.iterdir()} == {0o600}
    assert [file.name for file in path.iterdir() if b"s3cr3t" in file.read_bytes()] == ["environment"]
    spec = directory.read_record(str(path), "spec.json")
    assert spec is not None
    assert spec["environment_names"] == ["RAMET_KEEPER", "RAMET_SESSION", "TOKEN"]


async def test_a_missing_program_and_a_missing_directory_are_distinguished(
    executor: LocalExecutor, tmp_path: Path
) -> None:
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    plain = tmp_path / "plain"
    plain.touch(0o644)

    with pytest.raises(WorkingDirectoryError, match="No such file"):
        await executor.start(agent(ECHO, tmp_path / "gone"))
    with pytest.raises(WorkingDirectoryError, match="Not a directory"):
        await executor.start(agent(ECHO, plain))
    with pytest.raises(AgentUnavailableError, match="no program no-such-agent"):
        await executor.start(agent(ECHO, tmp_path, argv=("no-such-agent",)))
    with pytest.raises(AgentUnavailableError, match="no program /no/such/agent"):
        await executor.start(agent(ECHO, tmp_path, argv=("/no/such/agent",)))
    with pytest.raises(AgentUnavailableError, match="interpreter"):
        await executor.start(agent(ECHO, tmp_path, argv=(str(script),)))
    with pytest.raises(AgentUnavailableError, match="Permission denied"):
        await executor.start(agent(ECHO, tmp_path, argv=(str(plain),)))
    with pytest.raises(InvalidInputError):
        await executor.start(agent(ECHO, tmp_path, argv=()))
    with pytest.raises(BadNameError):
        await executor.start(agent(ECHO, tmp_path, session_id="../escape"))

    assert executor.discover() == []
    assert (await executor.start(agent(ECHO, tmp_path))) in executor.discover()


async def test_a_socket_that_cannot_be_is_named_and_nothing_is_left(tmp_path: Path) -> None:
    too_long = LocalExecutor(tmp_path / "agents", tmp_path / ("x" * 108))
    with pytest.raises(RuntimeDirectoryError, match="bytes"):
        await too_long.start(agent(ECHO, tmp_path))
    async with private_executor() as executor:
        (executor.sockets / "s-1.sock").mkdir()
        with pytest.raises(RuntimeDirectoryError, match="Is a directory"):
            await executor.start(agent(ECHO, tmp_path))
        assert executor.discover() == []
        (executor.sockets / "s-1.sock").rmdir()


async def test_a_python_that_is_gone_is_named_and_nothing_is_left(tmp_path: Path) -> None:
    executor = LocalExecutor(tmp_path / "agents", Path("/tmp"), python="/no/such/python")

    with pytest.raises(KeeperError, match="/no/such/python"):
        await executor.start(agent(ECHO, tmp_path))
    assert not any((tmp_path / "agents").iterdir())


async def test_starting_again_returns_the_same_process(executor: LocalExecutor, tmp_path: Path) -> None:
    spec = agent("import os; print(os.getpid()); import sys; sys.stdin.read()", tmp_path)
    handles = await asyncio.gather(*(executor.start(spec) for _ in range(4)))
    run = run_record(handles[0])

    assert len(set(handles)) == 1
    assert await executor.start(spec) == handles[0]
    assert run_record(handles[0]) == run
    await eventually(lambda: journal_bytes(handles[0]) == b"%d\n" % run["agent_pid"])

    await executor.end(handles[0], 1.0)
    assert await executor.start(spec) == handles[0]  # it has run once
    assert (await executor.recover(handles[0])).liveness is Liveness.EXITED


async def test_a_cancelled_start_continues_and_a_repeated_one_gets_its_outcome(
    executor: LocalExecutor, tmp_path: Path
) -> None:
    spec = agent(ECHO, tmp_path)
    start = asyncio.ensure_future(executor.start(spec))
    await eventually(lambda: executor.discover() != [])
    start.cancel()
    with pytest.raises(asyncio.CancelledError):
        await start

    handle = await executor.start(spec)

    assert (await executor.recover(handle)).liveness is Liveness.ALIVE
    assert executor.discover() == [handle]


async def test_closing_waits_for_a_start_whose_caller_was_cancelled(executor: LocalExecutor, tmp_path: Path) -> None:
    start = asyncio.ensure_future(executor.start(agent(ECHO, tmp_path)))
    await eventually(lambda: executor.discover() != [])
    start.cancel()
    with pytest.raises(asyncio.CancelledError):
        await start

    await executor.aclose()

    assert {run_record(handle)["agent_pid"] > 0 for handle in executor.discover()} == {True}
    assert [task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("start ")] == []


async def test_an_interrupted_start_is_resumed(executor: LocalExecutor, tmp_path: Path) -> None:
    spec = agent(ECHO, tmp_path)
    handle = await executor.start(spec)
    await executor.end(handle, 0.0)
    path = keeper_path(handle)
    await eventually(lambda: not directory.is_locked(str(path)))
    for name in ("run.json", "exit.json"):
        (path / name).unlink()
    assert executor.discover() == [handle]

    assert await executor.start(spec) == handle

    assert (await executor.recover(handle)).liveness is Liveness.ALIVE


async def test_destroy_refuses_while_anything_lives_and_leaves_nothing(executor: LocalExecutor, tmp_path: Path) -> None:
    handle = await executor.start(agent(ECHO, tmp_path))
    with pytest.raises(WrongStateError):
        await executor.destroy(handle)

    await executor.end(handle, 1.0)
    await executor.destroy(handle)
    await executor.destroy(handle)

    assert executor.discover() == []
    assert not any(executor.sockets.iterdir())
    assert not any(keeper_path(handle).parent.iterdir())


async def test_discover_finds_every_process_in_order(executor: LocalExecutor, tmp_path: Path) -> None:
    started = [
        await executor.start(agent("", tmp_path, session_id=session, generation=generation))
        for session, generation in (("b", 2), ("a-1", 10), ("b", 1), ("a-1", 9))
    ]

    assert executor.discover() == [started[3], started[1], started[2], started[0]]


async def test_a_full_disk_holds_the_agent_and_loses_nothing(executor: LocalExecutor, tmp_path: Path) -> None:
    script = """
        import sys
        for line in sys.stdin:
            for n in range(4000): print(f"{n:099d}")
            print("done", flush=True)
    """
    handle = await executor.start(agent(script, tmp_path))
    keeper = run_record(handle)["keeper_pid"]
    attachment = await executor.attach(handle, epoch=1, offset=0)
    # The limit on file sizes fails writes as a full disk does, halfway through one too.
    _, hard = resource.prlimit(keeper, resource.RLIMIT_FSIZE)
    resource.prlimit(keeper, resource.RLIMIT_FSIZE, (50_010, hard))

    await attachment.write(b"go\n")
    long_line = asyncio.ensure_future(attachment.write(b"x" * 60_000 + b"\n"))

    await eventually(lambda: len(journal_bytes(handle, "stdin")) == 50_010)
    status = await attachment.status()
    assert status["blocked"] == "EFBIG"
    assert resident_kib(keeper) < 14 << 10
    assert not long_line.done()

    resource.prlimit(keeper, resource.RLIMIT_FSIZE, (hard, hard))
    assert await long_line == 60_004
    expected = b"".join(b"%099d\n" % number for number in range(4000)) + b"done\n"
    lines = [await next_line(attachment) for _ in range(8002)]
    assert b"".join(line.data for line in lines) == expected * 2
    assert (await attachment.status())["blocked"] is None
    await attachment.close()


def group_is(group: Path, nice: int) -> bool:
    return group.read_text().endswith(f" nice {nice}\n")


async def test_an_agent_and_its_session_are_at_least_as_nice_as_asked(executor: LocalExecutor, tmp_path: Path) -> None:
    script = "import os; print(os.nice(0), flush=True); input()"
    groups = Path("/proc/self/autogroup")
    own = (os.nice(0), groups.read_text() if groups.exists() else "")
    for number, nice in enumerate((0, 7), 1):
        handle = await executor.start(agent(script, tmp_path, generation=number, nice=nice))
        attachment = await executor.attach(handle, epoch=1, offset=0)
        assert int((await next_line(attachment)).data) == max(nice, own[0])
        if groups.exists():
            group = Path(f"/proc/{run_record(handle)['agent_pid']}/autogroup")
            await eventually(partial(group_is, group, nice))
        keeper = run_record(handle)["keeper_pid"]
        assert os.getpriority(os.PRIO_PROCESS, keeper) == own[0]
        await attachment.close()
    assert own == (os.nice(0), groups.read_text() if groups.exists() else "")
