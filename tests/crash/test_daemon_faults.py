"""Known faults of similar tools, tested with a complete daemon."""

import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import grpc
import psutil
import pytest
from ramet.v1 import common_pb2, event_pb2
from rametd.services.agents.runner import BACKLOG_BYTES

from tests.crash.scene import Gates, approve, check_prompts, delete, leftovers, open_requests, settle_down, the_pid
from tests.crash.test_failpoints import start_to_die, wait_for_death
from tests.support.agents import script
from tests.support.daemon import (
    FAILED,
    IDLE,
    WAITING,
    WORKING,
    Client,
    DaemonProcess,
    Sandbox,
    connected,
    daemon_process,
    git,
    reason_of,
)
from tests.support.eventually import eventually, eventually_sync

pytestmark = pytest.mark.crash

BYPASS = common_pb2.PERMISSION_MODE_BYPASS_PERMISSIONS
EXIT_ALREADY_RUNNING = 75
DAEMONS = 8
FLOOD = 128 << 20
ROOM = 20 * BACKLOG_BYTES
"""Bytes by which a daemon may grow under a flood, 80 MB: a line that is not stored yet is in memory
several times, as bytes, text, facts and event, and SQLite has its cache. Measured: 34 MB, beside
busy loops too."""
ASKS = {"tool": "Bash", "input": {"command": "echo ran >> ran.txt", "description": "x"}}


def one_more(sandbox: Sandbox) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "rametd"],
        env=sandbox.environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


# ── one daemon ────────────────────────────────────────────────────────────────────────────────────


def test_of_many_daemons_started_at_once_one_serves_and_the_others_say_so(sandbox: Sandbox) -> None:
    started = [one_more(sandbox) for _ in range(DAEMONS)]
    try:
        eventually_sync(lambda: sum(each.poll() is None for each in started) == 1, within=60)
        (serving,) = [each for each in started if each.poll() is None]
        eventually_sync(lambda: sandbox.ctl("ls").code == 0, every=0.2)
        for other in started:
            if other is not serving:
                _, words = other.communicate()
                assert other.returncode == EXIT_ALREADY_RUNNING
                (line,) = words.splitlines()
                assert "another daemon" in line
    finally:
        for each in started:
            each.kill()
            each.wait()
            assert each.stderr is not None
            each.stderr.close()


async def test_a_daemon_that_does_not_answer_for_a_while_is_not_replaced(
    daemon: DaemonProcess, client: Client, sandbox: Sandbox, repository: Path
) -> None:
    made = await client.create(repository, script(ASKS), name="asks")
    await client.reach("asks", WAITING)
    daemon_process = psutil.Process(daemon.pid)

    daemon_process.suspend()
    other = one_more(sandbox)
    try:
        _, words = other.communicate(timeout=60)
    finally:
        daemon_process.resume()

    assert other.returncode == EXIT_ALREADY_RUNNING
    assert f"pid {daemon.pid}" in words
    assert (await client.get("asks")).id == made.id
    await approve(client, "asks")
    await settle_down(client, "asks")


async def test_a_service_manager_that_stops_the_daemon_leaves_the_agents_alone(
    daemon: DaemonProcess, client: Client, sandbox: Sandbox, repository: Path
) -> None:
    made = await client.create(repository, script(ASKS), name="asks")
    await client.reach("asks", WAITING)
    pid = the_pid(sandbox, made.conversation_id)

    assert daemon.stop() == 0
    assert the_pid(sandbox, made.conversation_id) == pid
    daemon.start()

    assert (await client.get("asks")).state == WAITING
    assert the_pid(sandbox, made.conversation_id) == pid
    await approve(client, "asks")
    assert (await settle_down(client, "asks")).turns == 1


# ── state and disk ────────────────────────────────────────────────────────────────────────────────


def truncate(path: Path) -> None:
    path.with_name(f"{path.name}-wal").unlink(missing_ok=True)
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)


def scribble(path: Path) -> None:
    path.with_name(f"{path.name}-wal").unlink(missing_ok=True)
    path.write_bytes(b"not a database " * 500)


@pytest.mark.parametrize("damage", [pytest.param(truncate, marks=pytest.mark.smoke), scribble])
async def test_a_damaged_database_is_quarantined_and_rebuilt_under_living_agents(
    sandbox: Sandbox, repository: Path, damage: Callable[[Path], None]
) -> None:
    again = {"tool": "Bash", "input": {"command": "echo again >> ran.txt", "description": "x"}}
    with daemon_process(sandbox) as daemon:
        async with connected(sandbox) as client:
            asks = await client.create(repository, script(ASKS, again), name="asks", model="claude-sonnet-5")
            idle = await client.create(repository, script({"text": "over"}), name="idle")
            await client.reach("asks", WAITING)
            await approve(client, "asks")  # the new database must not ask this one again

            async def second_question() -> bool:
                request = await client.reach("asks", WAITING)
                return "again" in request.state_reason

            await eventually(second_question)
            await settle_down(client, "idle")
            pids = {each.id: the_pid(sandbox, each.conversation_id) for each in (asks, idle)}
            daemon.kill()
            damage(sandbox.root / "state" / "ramet.db")

            daemon.start()

            (quarantined,) = (sandbox.root / "state" / "quarantine").iterdir()
            assert (quarantined / "ramet.db").exists()
            for each in (asks, idle):
                found = await client.get(each.id)
                assert (found.name, found.branch, found.worktree) == (each.name, each.branch, each.worktree)
                assert found.conversation_id == each.conversation_id
                assert the_pid(sandbox, each.conversation_id) == pids[each.id]
            await client.reach("asks", WAITING)
            assert (await client.get("asks")).model == "claude-sonnet-5"
            await client.reach("idle", IDLE)
            assert list(await open_requests(client)) == ["asks"]
            await approve(client, "asks")
            session = await settle_down(client, "asks")
            assert (Path(session.worktree) / "ran.txt").read_text() == "ran\nagain\n"
            assert session.turns == 1
            assert the_pid(sandbox, asks.conversation_id) == pids[asks.id]
            for each in (asks, idle):
                await check_journal(client, sandbox, each.id)


async def check_journal(client: Client, sandbox: Sandbox, session_id: str) -> None:
    """Check that every line of the agent is one event, in order."""
    journal = (sandbox.root / "state" / "agents" / f"{session_id}-1" / "journal.00000000000000000000").read_bytes()
    log: list[event_pb2.Event] = await client.log(session_id, frames=True)
    assert b"".join(event.frame + b"\n" for event in log if event.generation) == journal


async def test_lines_of_several_agents_that_were_read_and_not_committed_are_read_again(
    sandbox: Sandbox, repository: Path
) -> None:
    gates = Gates(sandbox)
    gates.close("stream")
    names = ("one", "two", "three")
    daemon = DaemonProcess(sandbox)
    daemon.start(RAMET_FAILPOINT="lines.read")
    async with connected(sandbox) as client:
        prompt = script(gates.wait_for_gate("stream"), {"flood": 300_000, "line": 100})
        ids = [(await client.create(repository, prompt, name=name, mode=BYPASS)).id for name in names]
        for name in names:
            await client.reach(name, WORKING)
        gates.open("stream")
        wait_for_death(daemon)
        start_to_die(daemon, "lines.read")
        daemon.start()
        for name in names:
            await settle_down(client, name)
        for session_id in ids:
            await check_journal(client, sandbox, session_id)
    daemon.kill()


# ── streams and processes ─────────────────────────────────────────────────────────────────────────


async def test_an_agent_that_floods_its_output_does_not_fill_the_daemons_memory(
    daemon: DaemonProcess, client: Client, repository: Path
) -> None:
    await client.create(repository, script({"text": "small"}), name="floods")
    await settle_down(client, "floods")
    before = psutil.Process(daemon.pid).memory_info().rss

    await client.send("floods", script({"flood": FLOOD, "line": 1 << 20}))
    session = await settle_down(client, "floods", within=60)
    assert session.turns == 2

    async def three_checkpoints() -> bool:
        return len(await client.checkpoints("floods")) == 3

    await eventually(three_checkpoints)  # which searches for the agent's last words

    grown = peak_memory(daemon.pid) - before
    assert grown < ROOM, f"{grown >> 20} MB"


def peak_memory(pid: int) -> int:
    """Return the peak resident memory of a process, in bytes."""
    status = Path(f"/proc/{pid}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) << 10


@pytest.mark.smoke
async def test_an_agent_that_dies_at_once_has_its_last_words_in_the_reason(sandbox: Sandbox, repository: Path) -> None:
    gates = Gates(sandbox, max_resumes=0)
    gates.close("refuses.refuse")
    with daemon_process(sandbox):
        async with connected(sandbox) as client:
            await client.create(repository, "hello", name="refuses", environment={"GATE": "refuses"})
            await client.create(
                repository, script({"stderr": "the license server is on fire", "die": 3}), name="breaks"
            )

            assert (await client.reach("refuses", FAILED)).state_reason == "no licence for this machine"
            assert "the license server is on fire" in (await client.reach("breaks", FAILED)).state_reason


async def test_a_session_whose_worktree_was_deleted_is_named_and_can_be_removed(
    client: Client, sandbox: Sandbox, repository: Path
) -> None:
    await client.create(repository, script({"fail": "not yet"}), name="before")
    await client.reach("before", FAILED)
    made = await client.create(repository, script({"text": "hello"}), name="homeless", after=["before"])
    shutil.rmtree(made.worktree)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await client.send("homeless", script({"text": "more"}))
    assert made.worktree in str(caught.value.details())

    await client.send("before", script({"text": "done"}))  # which starts the other one

    failed = await client.reach("homeless", FAILED)
    assert made.worktree in failed.state_reason
    assert "no program" not in failed.state_reason
    await delete(client, "homeless")
    await delete(client, "before")
    assert not leftovers(sandbox, repository)


async def test_a_session_of_which_nothing_is_left_can_be_removed(
    client: Client, sandbox: Sandbox, repository: Path
) -> None:
    made = await client.create(repository, name="gone")
    shutil.rmtree(made.worktree)
    git(repository, "worktree", "unlock", made.worktree)
    git(repository, "worktree", "prune")
    git(repository, "branch", "-q", "-D", made.branch)

    await delete(client, "gone")

    assert not leftovers(sandbox, repository)


@pytest.mark.smoke
async def test_a_missing_agent_is_one_clear_line_and_nothing_is_half_made(sandbox: Sandbox, repository: Path) -> None:
    sandbox.configure('[agents.claude]\npath = "/nowhere/claude"\n')
    with daemon_process(sandbox):
        async with connected(sandbox) as client:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await client.create(repository, "hello", name="none")

            assert reason_of(caught.value) == "AGENT_UNAVAILABLE"
            (line,) = str(caught.value.details()).splitlines()
            assert "/nowhere/claude" in line
            assert not leftovers(sandbox, repository)


async def test_a_keeper_that_hangs_does_not_lead_to_two_agents_of_one_conversation(
    request: pytest.FixtureRequest, daemon: DaemonProcess, client: Client, sandbox: Sandbox, repository: Path
) -> None:
    if not request.config.getoption("--crash-rounds"):
        pytest.skip("waits half a minute until the daemon gives the keeper up: `make soak` runs it")
    text = script(ASKS, {"text": "done"})
    made = await client.create(repository, text, name="asks")
    await client.reach("asks", WAITING)
    pid = the_pid(sandbox, made.conversation_id)
    daemon.kill()
    (keeper,) = sandbox.keepers()
    keeper.send_signal(signal.SIGSTOP)

    daemon.start()  # which times out on the keeper, and serves anyway

    await eventually(lambda: the_pid(sandbox, made.conversation_id) not in {0, pid}, within=60)
    await client.reach("asks", WAITING)
    await approve(client, "asks")
    await check_prompts(client, sandbox, await settle_down(client, "asks"), [text])
