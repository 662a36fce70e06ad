"""Kill keepers and controllers: nothing is lost, doubled, invented, or signalled by mistake."""

# ruff: noqa: ASYNC220, S311
# A test may block its loop for a moment, and random numbers must be the same in every run.

import asyncio
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from rametd.keeper import directory
from rametd.keeper.executor import Liveness
from rametd.keeper.local import LocalExecutor

from tests.support.eventually import eventually
from tests.support.keepers import (
    ECHO,
    agent,
    is_running,
    journal_bytes,
    keeper_path,
    kill,
    next_line,
    private_executor,
    read_all,
    rest_of,
    run_record,
)

pytestmark = pytest.mark.crash

CONTROLLER = """
import asyncio, sys
from pathlib import Path
from rametd.keeper.executor import Handle
from rametd.keeper.local import LocalExecutor

async def main(handle, epoch, output):
    executor = LocalExecutor(Path("/nowhere"), Path("/nowhere"))
    with open(output, "ab", buffering=0) as file:
        attachment = await executor.attach(Handle(handle), epoch=int(epoch), offset=file.tell())
        print("attached", flush=True)
        async for lines in attachment:
            for line in lines:
                file.write(line.data)
                attachment.release(line.start)

asyncio.run(main(*sys.argv[1:]))
"""


async def grown_to(path: Path, size: int) -> None:
    await eventually(lambda: path.stat().st_size >= size, every=0.001)


@pytest.fixture
async def executor() -> AsyncIterator[LocalExecutor]:
    async with private_executor() as executor:
        yield executor


async def test_a_controller_that_is_killed_again_and_again_gets_every_byte_once(
    request: pytest.FixtureRequest, executor: LocalExecutor, tmp_path: Path
) -> None:
    kills = request.config.getoption("--crash-rounds") or 8
    lines = 200 * kills
    source = random.Random(1)
    expected = "".join(f"{n} " + "x" * source.choice((0, 10, 300, 20000)) + "\n" for n in range(lines)).encode()
    script = f"""
        import sys, random, time
        source = random.Random(1)
        for n in range({lines}):
            sys.stdout.write(f"{{n}} " + "x" * source.choice((0, 10, 300, 20000)) + "\\n")
            if n % 16 == 0:
                sys.stdout.flush()
                time.sleep(0.003)  # so slowly that each of the kills falls into it
        sys.stdout.flush()
        sys.stdin.read()
    """
    handle = await executor.start(agent(script, tmp_path, segment_bytes=1 << 20))
    output = tmp_path / "received"
    chance = random.Random(2)
    for epoch in range(kills):
        controller = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", CONTROLLER, handle, str(epoch), str(output)), stdout=asyncio.subprocess.PIPE
        )
        assert controller.stdout is not None
        assert await controller.stdout.readline() == b"attached\n"
        await grown_to(output, min(output.stat().st_size + chance.randrange(800_000), len(expected) * 19 // 20))
        controller.kill()
        await controller.wait()
        # Killed during a write to its own file; a real one commits line and offset together.
        whole = output.read_bytes().rpartition(b"\n")[0]
        output.write_bytes(whole + b"\n" if whole else b"")
    last = await executor.attach(handle, epoch=100, offset=output.stat().st_size)
    with output.open("ab", buffering=0) as file:
        while file.tell() < len(expected):
            file.write((await next_line(last)).data)
    await last.close()

    received = output.read_bytes()
    assert len(received) == len(expected)
    assert hashlib.sha256(received).digest() == hashlib.sha256(expected).digest()


@pytest.mark.smoke
async def test_a_killed_keeper_differs_from_an_ended_agent_and_its_tree_is_swept(
    executor: LocalExecutor, tmp_path: Path
) -> None:
    script = """
        import os, subprocess, sys, time
        child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                os.write(1, b"%d\\n" % os.getpid())
                time.sleep(1000)
            os._exit(0)
        os.write(1, b"%d\\n" % child.pid)
        time.sleep(1000)
    """
    handle = await executor.start(agent(script, tmp_path))
    attachment = await executor.attach(handle, epoch=1, offset=0)
    pids = [int((await next_line(attachment)).data) for _ in range(2)]
    run = run_record(handle)
    foreign = subprocess.Popen(["sleep", "1000"], start_new_session=True)

    kill(run["keeper_pid"])
    await eventually(lambda: not directory.is_locked(str(keeper_path(handle))))

    recovered = await executor.recover(handle)
    assert (recovered.liveness, recovered.agent_alive, recovered.exit) == (Liveness.KEEPER_LOST, True, None)
    assert await rest_of(attachment) == []
    assert await attachment.wait_exit() is None
    await executor.signal(handle, "SIGCONT")
    assert await executor.end(handle, 0.2) is None
    assert not any(is_running(pid) for pid in (*pids, run["agent_pid"]))
    recovered = await executor.recover(handle)
    assert (recovered.liveness, recovered.agent_alive, recovered.exit) == (Liveness.KEEPER_LOST, False, None)
    assert is_running(foreign.pid)
    foreign.kill()
    foreign.wait()
    await attachment.close()


@pytest.mark.smoke
async def test_what_a_killed_keeper_journalled_is_still_delivered(executor: LocalExecutor, tmp_path: Path) -> None:
    handle = await executor.start(
        agent("for n in range(100): print(n)\nprint('tail', end='')\nimport time; time.sleep(9)", tmp_path)
    )
    await eventually(lambda: journal_bytes(handle).endswith(b"tail"))
    kill(run_record(handle)["keeper_pid"])
    await eventually(lambda: not directory.is_locked(str(keeper_path(handle))))

    attachment = await executor.attach(handle, epoch=1, offset=0)

    assert await read_all(attachment) == b"".join(b"%d\n" % n for n in range(100)) + b"tail"
    assert await attachment.wait_exit() is None
    await attachment.close()


async def test_a_stale_record_with_reused_pids_signals_no_process(executor: LocalExecutor, tmp_path: Path) -> None:
    handle = await executor.start(agent(ECHO, tmp_path))
    run = run_record(handle)
    kill(run["keeper_pid"])
    await eventually(lambda: not is_running(run["agent_pid"]))
    foreign = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    stale = {**run, "agent_pid": foreign.pid, "keeper_pid": foreign.pid}
    (keeper_path(handle) / "run.json").write_text(json.dumps(stale))

    recovered = await executor.recover(handle)
    assert (recovered.liveness, recovered.agent_alive) == (Liveness.KEEPER_LOST, False)
    assert await executor.end(handle, 0.0) is None
    assert foreign.poll() is None

    # The correct start time, but of another boot.
    stat = Path(f"/proc/{foreign.pid}/stat").read_bytes()
    start = stat.rpartition(b") ")[2].split()[19].decode()
    other_boot = {**stale, "agent_start": start, "boot_id": "another"}
    (keeper_path(handle) / "run.json").write_text(json.dumps(other_boot))
    assert await executor.end(handle, 0.0) is None
    assert foreign.poll() is None
    foreign.kill()
    foreign.wait()


async def test_a_damaged_record_is_unknown_and_its_agent_is_still_ended(
    executor: LocalExecutor, tmp_path: Path
) -> None:
    handle = await executor.start(agent("import time\nprint('up')\ntime.sleep(1000)", tmp_path))
    await eventually(lambda: journal_bytes(handle) == b"up\n")
    run = run_record(handle)
    kill(run["keeper_pid"])
    await eventually(lambda: not directory.is_locked(str(keeper_path(handle))))
    (keeper_path(handle) / "run.json").write_text('{"agent_pid": ')

    assert (await executor.recover(handle)).liveness is Liveness.UNKNOWN
    assert await executor.end(handle, 0.2) is None

    assert not is_running(run["agent_pid"])


async def test_a_stopped_keeper_is_replaced_by_the_sweep_in_the_end(
    executor: LocalExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, seconds in (("rametd.keeper.connection.TIMEOUT", 0.3), ("rametd.keeper.local.SETTLE", 0.3)):
        monkeypatch.setattr(name, seconds)
    handle = await executor.start(agent("import time; time.sleep(1000)", tmp_path))
    run = run_record(handle)
    os.kill(run["keeper_pid"], signal.SIGSTOP)

    assert await executor.end(handle, 0.1) is None

    assert not is_running(run["agent_pid"])
    assert not is_running(run["keeper_pid"])


async def test_keepers_killed_at_random_never_leave_an_agent_or_a_half_record(
    request: pytest.FixtureRequest, executor: LocalExecutor, tmp_path: Path
) -> None:
    chance = random.Random(3)
    for generation in range(request.config.getoption("--crash-rounds") or 6):
        spec = agent("import sys\nfor n in range(10000): print(n)\nsys.stdin.read()", tmp_path, generation=generation)
        handle = await executor.start(spec)
        run = run_record(handle)
        ending = asyncio.ensure_future(executor.end(handle, 0.2)) if chance.random() < 0.7 else None
        for _ in range(chance.randrange(40)):
            await executor.recover(handle)
        kill(run["keeper_pid"])
        record = await executor.end(handle, 0.2)
        recovered = await executor.recover(handle)

        assert not is_running(run["agent_pid"])
        assert recovered.liveness in (Liveness.EXITED, Liveness.KEEPER_LOST)
        assert (record is None) == (recovered.liveness is Liveness.KEEPER_LOST)
        assert recovered.exit == record
        if ending is not None:
            assert await ending == record
