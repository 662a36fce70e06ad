"""End of an agent: politely first, then everything that it started, and nothing else."""

# A test may block its loop for a moment.

import asyncio
import os
import resource
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from rametd.domain.errors import ReadOnlyError, WrongStateError
from rametd.keeper.executor import Handle, Liveness, Recovered
from rametd.keeper.local import LocalExecutor
from rametd.platform import processes

from tests.support.eventually import eventually
from tests.support.keepers import (
    ECHO,
    agent,
    is_running,
    journal_bytes,
    keeper_path,
    next_line,
    private_executor,
    read_all,
    run_record,
)

LEAVES_SERVERS = """
    import os, subprocess, sys, time
    server = subprocess.Popen(["sleep", "1000"], start_new_session=True)   # as Bash tools do
    if os.fork() == 0:                                                     # a daemon: our grandchild is nobody's child
        os.setsid()
        if os.fork() == 0:
            os.write(1, b"%d\\n" % os.getpid())
            time.sleep(1000)
        os._exit(0)
    os.write(1, b"%d\\n" % server.pid)
    sys.stdin.read()
    {end}
"""


@pytest.fixture
async def executor() -> AsyncIterator[LocalExecutor]:
    async with private_executor() as executor:
        yield executor


@pytest.fixture
def foreigner() -> Iterator[int]:
    """A foreign process of the same name, with another session's tag."""
    environment = {"PATH": "/usr/bin:/bin", "RAMET_SESSION": "s", "RAMET_KEEPER": "/another/s-1"}
    process = subprocess.Popen(["sleep", "1000"], env=environment, start_new_session=True)
    yield process.pid
    process.kill()
    process.wait()


async def test_an_agent_that_reads_to_the_end_of_stdin_ends_without_a_signal(
    executor: LocalExecutor, tmp_path: Path
) -> None:
    handle = await executor.start(agent(ECHO + "\n    print('bye')", tmp_path))
    attachment = await executor.attach(handle, epoch=7, offset=0)
    await attachment.write(b"last\n")

    record = await executor.end(handle, 5.0, epoch=7)

    assert record is not None
    assert record.asked is not None
    assert (record.code, record.signal, record.asked.by, record.asked.epoch) == (0, None, "controller", 7)
    assert await read_all(attachment) == b"got last\nbye\n"
    assert await executor.end(handle, 5.0) == record
    await attachment.close()


async def test_an_agent_that_ignores_the_end_of_stdin_gets_sigterm_then_sigkill(
    executor: LocalExecutor, tmp_path: Path
) -> None:
    deaf = await executor.start(agent("import time\nprint('up')\ntime.sleep(1000)", tmp_path))
    stubborn = await executor.start(
        agent(
            "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('up')\ntime.sleep(1000)",
            tmp_path,
            session_id="t",
        )
    )
    await eventually(lambda: journal_bytes(deaf) == journal_bytes(stubborn) == b"up\n")

    records = await asyncio.gather(executor.end(deaf, 0.1), executor.end(stubborn, 0.1))

    assert [record and record.signal for record in records] == ["SIGTERM", "SIGKILL"]


@pytest.mark.parametrize("by_itself", [False, True])
async def test_servers_that_left_the_process_group_end_with_the_agent(
    executor: LocalExecutor, tmp_path: Path, foreigner: int, by_itself: bool
) -> None:
    handle = await executor.start(agent(LEAVES_SERVERS.format(end=""), tmp_path))
    attachment = await executor.attach(handle, epoch=1, offset=0)
    pids = [int((await next_line(attachment)).data) for _ in range(2)]
    assert all(is_running(pid) for pid in pids)

    if by_itself:
        # Without END the keeper must not close stdin: a signal ends the agent.
        await attachment.signal("SIGKILL")
    else:
        await executor.end(handle, 5.0)
    record = await attachment.wait_exit()

    assert record is not None
    assert record.swept >= 2
    assert (record.signal, record.asked is None) == (("SIGKILL", True) if by_itself else (None, False))
    assert not any(is_running(pid) for pid in pids)
    assert is_running(foreigner)
    await attachment.close()


async def test_descendants_stay_if_requested(executor: LocalExecutor, tmp_path: Path) -> None:
    script = "import subprocess\nprint(subprocess.Popen(['sleep', '1000'], start_new_session=True).pid)"
    handle = await executor.start(agent(script, tmp_path, keep_descendants=True))
    attachment = await executor.attach(handle, epoch=1, offset=0)
    pid = int((await next_line(attachment)).data)

    record = await attachment.wait_exit()

    assert record is not None
    assert (record.code, record.swept) == (0, 0)
    assert is_running(pid)
    os.kill(pid, signal.SIGKILL)
    await attachment.close()


async def test_a_fork_storm_is_ended_completely(executor: LocalExecutor, tmp_path: Path) -> None:
    script = """
        import os, sys, time
        print("up", flush=True)
        for _ in range(400):
            if os.fork() == 0:
                os.setsid()
                time.sleep(0.01)
                continue
            os._exit(0)
        time.sleep(1000)
    """
    handle = await executor.start(agent(script, tmp_path))
    await eventually(lambda: journal_bytes(handle) == b"up\n")

    record = await executor.end(handle, 0.0)

    assert record is not None
    assert record.left == ()
    assert processes.tagged({"RAMET_KEEPER": str(keeper_path(handle))}) == []


async def test_the_words_of_an_agent_that_dies_at_once_are_stored(executor: LocalExecutor, tmp_path: Path) -> None:
    script = "import sys\nprint('half', end='')\nsys.exit('No conversation found with session ID x')"
    handle = await executor.start(agent(script, tmp_path))

    recovered = await eventually_exited(executor, handle)

    assert recovered.exit is not None
    assert recovered.exit.code == 1
    assert recovered.stderr_tail == "No conversation found with session ID x\n"


async def eventually_exited(executor: LocalExecutor, handle: Handle) -> Recovered:
    async def is_over() -> bool:
        return (await executor.recover(handle)).liveness is Liveness.EXITED

    over: bool = await eventually(is_over)
    assert over
    return await executor.recover(handle)


async def test_a_descendant_that_holds_stdout_open_does_not_hold_up_the_end(
    executor: LocalExecutor, tmp_path: Path
) -> None:
    script = """
        import os, sys
        if os.fork() == 0:
            os.setsid()
            while True:
                try: os.write(1, b"noise " * 100 + b"\\n")
                except OSError: os._exit(0)
        os.write(1, b"agent done\\n")
    """
    handle = await executor.start(agent(script, tmp_path))

    recovered = await eventually_exited(executor, handle)  # and not at the end of the output, which is endless

    assert recovered.exit is not None
    assert (recovered.exit.code, recovered.exit.left) == (0, ())
    assert b"agent done\n" in journal_bytes(handle)


async def test_sigterm_to_the_keeper_ends_politely_and_a_hangup_not_at_all(
    executor: LocalExecutor, tmp_path: Path
) -> None:
    handle = await executor.start(agent(ECHO + "\n    print('bye')", tmp_path))
    attachment = await executor.attach(handle, epoch=1, offset=0)
    keeper = run_record(handle)["keeper_pid"]
    os.kill(keeper, signal.SIGHUP)
    os.kill(keeper, signal.SIGINT)
    await attachment.write(b"still here\n")
    assert (await next_line(attachment)).data == b"got still here\n"

    os.kill(keeper, signal.SIGTERM)

    assert await read_all(attachment) == b"bye\n"
    record = await attachment.wait_exit()
    assert record is not None
    assert record.asked is not None
    assert (record.code, record.asked.by) == (0, "signal")
    await attachment.close()


async def test_a_signal_reaches_the_agent_alone(executor: LocalExecutor, tmp_path: Path) -> None:
    script = """
        import signal, sys
        signal.signal(signal.SIGINT, lambda *_: print("interrupted", flush=True))
        print("up", flush=True)
        for line in sys.stdin: pass
    """
    handle = await executor.start(agent(script, tmp_path))
    attachment = await executor.attach(handle, epoch=1, offset=0)
    await next_line(attachment)

    await executor.signal(handle, "SIGINT")
    assert (await next_line(attachment)).data == b"interrupted\n"
    await attachment.signal("SIGINT")
    assert (await next_line(attachment)).data == b"interrupted\n"

    await executor.end(handle, 1.0)
    with pytest.raises(WrongStateError):
        await executor.signal(handle, "SIGINT")
    await attachment.close()


async def test_a_second_less_patient_end_counts(executor: LocalExecutor, tmp_path: Path) -> None:
    handle = await executor.start(agent("import time\nprint('up')\ntime.sleep(1000)", tmp_path))
    patient = asyncio.ensure_future(executor.end(handle, 60.0))
    attachment = await executor.attach(handle, epoch=1, offset=0)

    async def asked() -> bool:
        return (await attachment.status())["asked"] is not None

    begun: bool = await eventually(asked)
    assert begun
    async with asyncio.timeout(30):  # half of the first one's wait
        impatient = await executor.end(handle, 0.05)

    assert await patient == impatient
    assert impatient is not None
    assert impatient.signal == "SIGTERM"
    await attachment.close()


async def test_a_full_disk_delays_the_record_of_an_end_but_does_not_lose_it(
    executor: LocalExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("GIVE_UP", "SETTLE"):
        monkeypatch.setattr(f"rametd.keeper.local.{name}", 0.4)
    handle = await executor.start(agent("import sys\nsys.stdin.read()\nprint('last words')\nsys.exit(5)", tmp_path))
    keeper = run_record(handle)["keeper_pid"]
    _, hard = resource.prlimit(keeper, resource.RLIMIT_FSIZE)
    resource.prlimit(keeper, resource.RLIMIT_FSIZE, (4, hard))

    with pytest.raises(ReadOnlyError, match="EFBIG"):
        await executor.end(handle, 0.5)
    resource.prlimit(keeper, resource.RLIMIT_FSIZE, (hard, hard))

    recovered = await eventually_exited(executor, handle)
    assert recovered.exit is not None
    assert recovered.exit.code == 5
    assert journal_bytes(handle) == b"last words\n"


def cgroup_root() -> Path | None:
    """Return a cgroup v2 directory in which this user may create groups."""
    for mount in (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified")):
        if (
            (mount / "cgroup.controllers").is_file()
            and os.access(mount, os.W_OK)
            and os.access(mount / "cgroup.procs", os.W_OK)
        ):
            return mount
    return None


@pytest.mark.skipif(cgroup_root() is None, reason="needs a cgroup v2 directory to write to")
async def test_a_keeper_and_its_tree_live_in_their_cgroup(executor: LocalExecutor, tmp_path: Path) -> None:
    root = cgroup_root()
    assert root is not None
    group = root / f"ramet-test-{os.getpid()}"
    group.mkdir()
    handle = await executor.start(agent(LEAVES_SERVERS.format(end=""), tmp_path, cgroup=group))
    run = run_record(handle)

    assert (group / "cgroup.procs").read_text() == f"{run['keeper_pid']}\n"
    await eventually(lambda: len((group / "agent/cgroup.procs").read_text().split()) == 3)
    await executor.end(handle, 0.0)
    await eventually(lambda: not is_running(run["keeper_pid"]))

    assert (group / "cgroup.procs").read_text() == ""
    assert not (group / "agent").exists()
    group.rmdir()


async def test_removals_and_looks_at_once_do_not_take_the_parts_away_under_each_other(
    executor: LocalExecutor, tmp_path: Path
) -> None:
    ended = await executor.start(agent("", tmp_path))
    await executor.wait(ended)
    path = keeper_path(ended)
    for number in range(200):
        (path / f"journal.{number + 1}").touch()
    handles = [ended]
    for generation in range(2, 7):
        shutil.copytree(path, path.with_name(f"s-{generation}"))
        handles.append(Handle(ended.replace('"generation": 1', f'"generation": {generation}')))
    assert sorted(await asyncio.to_thread(executor.discover)) == sorted(handles)
    await asyncio.gather(
        *(executor.destroy(handle) for handle in handles for _ in range(3)),
        *(asyncio.to_thread(executor.discover) for _ in range(20)),
    )
    assert list(path.parent.iterdir()) == []


async def test_a_removal_that_was_killed_is_finished_and_its_rest_taken_for_nothing(
    executor: LocalExecutor, tmp_path: Path
) -> None:
    handle = await executor.start(agent("", tmp_path))
    await executor.wait(handle)
    path = keeper_path(handle)
    rest = path.with_name(".s-9.0123abcd.gone")
    shutil.copytree(path, rest)
    assert await asyncio.to_thread(executor.discover) == [handle]
    assert not rest.exists()


async def test_a_signal_to_an_agent_that_has_just_ended_says_so(
    executor: LocalExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = await executor.start(agent(ECHO, tmp_path))
    looked = await executor.recover(handle)
    await executor.end(handle, 5.0)

    now = executor.recover

    async def earlier(handle: Handle) -> Recovered:
        monkeypatch.setattr(executor, "recover", now)
        return looked

    monkeypatch.setattr(executor, "recover", earlier)

    with pytest.raises(WrongStateError, match="has ended"):
        await executor.signal(handle, "SIGTERM")
