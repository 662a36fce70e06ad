"""Kill the daemon at each failpoint of an operation, and the next daemon at the next one: the
operation is completed or undone.

Each test runs one operation through all its failpoints: the daemon that recovers from one kill is
killed at the next failpoint, in recovery or in the repeated call.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
from ramet.v1 import common_pb2, session_pb2

from tests.crash.scene import (
    Gates,
    approve,
    check_prompts,
    delete,
    leftovers,
    rows,
    settle_down,
    the_pid,
    transcript,
)
from tests.support.agents import script
from tests.support.daemon import IDLE, PAUSED, WAITING, WORKING, Client, DaemonProcess, Sandbox, connected
from tests.support.eventually import eventually

pytestmark = pytest.mark.crash

BYPASS = common_pb2.PERMISSION_MODE_BYPASS_PERMISSIONS
EDITS = common_pb2.PERMISSION_MODE_ACCEPT_EDITS


@pytest.fixture
def gates(sandbox: Sandbox) -> Gates:
    return Gates(sandbox)


@pytest.fixture
def killed(sandbox: Sandbox) -> DaemonProcess:
    """Yield a daemon that is not started: every test arms it first."""
    return DaemonProcess(sandbox)


def start_to_die(daemon: DaemonProcess, point: str) -> None:
    """Start it; it dies at ``point`` during recovery, without a call."""
    daemon.start(wait=False, RAMET_FAILPOINT=point)
    wait_for_death(daemon)


def wait_for_death(daemon: DaemonProcess) -> None:
    assert daemon.process is not None
    assert daemon.process.wait(timeout=30) == -9, (daemon.sandbox.root / "rametd.out").read_text()


async def die_in(daemon: DaemonProcess, sandbox: Sandbox, call: Callable[[Client], Awaitable[Any]]) -> None:
    """Make a call during which the daemon dies."""
    async with connected(sandbox) as client:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(client)
        assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
    wait_for_death(daemon)


async def gone(sandbox: Sandbox, repository: Path) -> None:
    """Check that a long removal continues while the daemon serves."""

    def nothing() -> bool:
        assert leftovers(sandbox, repository) == []
        return True

    await eventually(nothing)


@pytest.mark.parametrize("point", ["environment.written", "launch.started"])
async def test_the_credentials_of_a_send_survive_a_kill_before_its_agent_starts(
    killed: DaemonProcess, sandbox: Sandbox, repository: Path, point: str
) -> None:
    prompt = script({"tool": "Bash", "input": {"command": "echo $AWS_SESSION_TOKEN >> env.txt", "description": "x"}})
    sandbox.configure(sandbox.directories.config_file.read_text() + "\n[permissions]\nallow_bypass = true\n")
    killed.start()
    async with connected(sandbox) as client:
        session = await client.create(repository, "hello", mode=BYPASS, environment={"AWS_SESSION_TOKEN": "old"})
        await client.reach(session.id, IDLE)
    killed.kill()
    killed.start(RAMET_FAILPOINT=point)

    sending = asyncio.create_task(
        asyncio.to_thread(partial(sandbox.ctl, "send", session.id, prompt, AWS_SESSION_TOKEN="new"))
    )
    await asyncio.to_thread(wait_for_death, killed)
    killed.start()
    assert (await sending).code == 0

    async with connected(sandbox) as client:
        await client.reach(session.id, IDLE)
    assert (Path(session.worktree) / "env.txt").read_text() == "new\n"


async def test_a_start_that_is_killed_five_times_is_one_process_and_one_turn(
    killed: DaemonProcess, sandbox: Sandbox, repository: Path
) -> None:
    text = script({"text": "told"})
    killed.start(RAMET_FAILPOINT="launch.started")
    async with connected(sandbox) as client:
        made = await client.create(repository, text, name="told")
    wait_for_death(killed)
    pid = the_pid(sandbox, made.conversation_id)
    assert rows(sandbox, "SELECT state, handle FROM agents") == [("starting", "")]

    for point in ("launch.stored", "prompt.committed", "prompt.written"):
        start_to_die(killed, point)
        assert the_pid(sandbox, made.conversation_id) == pid
    killed.start()

    async with connected(sandbox) as client:
        session = await settle_down(client, "told")
        assert session.turns == 1
        assert the_pid(sandbox, made.conversation_id) == pid
        await check_prompts(client, sandbox, session, [text])
    killed.kill()


@pytest.mark.smoke
async def test_an_answer_that_is_killed_on_its_way_counts_once(
    killed: DaemonProcess, sandbox: Sandbox, repository: Path
) -> None:
    bash = {"tool": "Bash", "input": {"command": "echo ran >> ran.txt", "description": "x"}}
    killed.start(RAMET_FAILPOINT="resolve.committed")
    async with connected(sandbox) as client:
        made = await client.create(repository, script(bash, {"text": "done"}), name="asks")
        await client.reach("asks", WAITING)
    pid = the_pid(sandbox, made.conversation_id)
    await die_in(killed, sandbox, lambda client: approve(client, "asks", "the answer"))

    for point in ("answer.committed", "answer.written"):
        # It may be any answer of the control protocol: of a hook, of a tool's handshake, or the
        # person's.
        start_to_die(killed, point)
    killed.start()

    async with connected(sandbox) as client:
        session = await settle_down(client, "asks")
        assert (Path(session.worktree) / "ran.txt").read_text() == "ran\n"
        assert session.turns == 1
        assert the_pid(sandbox, made.conversation_id) == pid
        assert (await approve(client, "asks", "the answer")).answered_by == "owner"
    killed.kill()


async def test_a_removal_that_is_killed_while_the_process_is_being_made_leaves_no_process(
    killed: DaemonProcess, sandbox: Sandbox, repository: Path
) -> None:
    killed.start(RAMET_FAILPOINT="launch.started")
    async with connected(sandbox) as client:
        made = await client.create(repository, script({"hang": True}), name="goes")
    wait_for_death(killed)
    killed.start(RAMET_FAILPOINT="remove.intended")
    async with connected(sandbox) as client:
        await client.reach("goes", WORKING)
    await die_in(killed, sandbox, lambda client: delete(client, "goes"))
    assert the_pid(sandbox, made.conversation_id)

    killed.start()

    await gone(sandbox, repository)
    killed.kill()


async def test_a_stop_survives_a_kill_and_the_session_can_resume(
    killed: DaemonProcess, sandbox: Sandbox, gates: Gates, repository: Path
) -> None:
    gates.close("work")
    killed.start(RAMET_FAILPOINT="end.intended")
    first, second = script(gates.wait_for_gate("work")), script({"text": "later"})
    async with connected(sandbox) as client:
        made = await client.create(repository, first, name="stops", mode=BYPASS)
        await eventually(lambda: transcript(sandbox, made.conversation_id))
    await die_in(
        killed,
        sandbox,
        lambda client: client.sessions.StopSession(
            session_pb2.StopSessionRequest(session="stops"), metadata=client.metadata
        ),
    )
    assert the_pid(sandbox, made.conversation_id)
    killed.start()

    async with connected(sandbox) as client:
        # Recovery records the stop before the agent has ended: a call in between sees both.
        async def ended() -> bool:
            return not (await client.reach("stops", PAUSED)).agent_alive

        await eventually(ended)
        assert the_pid(sandbox, made.conversation_id) == 0
        gates.open("work")
        await client.send("stops", second)
        session = await settle_down(client, "stops")
        await check_prompts(client, sandbox, session, [first, second])
        assert session.state == IDLE
    killed.kill()
