"""Warm agents with the real Claude Code: a session uses a program that started before the session
existed."""

import contextlib
import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import psutil
import pytest
from ramet.v1 import common_pb2, worktree_pb2

from tests.support.agents import script
from tests.support.daemon import IDLE, WAITING, Client, DaemonProcess, Sandbox, connected, make_sandbox
from tests.support.eventually import eventually

pytestmark = pytest.mark.real_cli

EDITS = common_pb2.PERMISSION_MODE_ACCEPT_EDITS


@pytest.fixture
def sandbox(model: int) -> Iterator[Sandbox]:
    with make_sandbox(model_port=model, real_cli=True, config="[pool]\nsize = 1\nwarm_agents = 1\n") as made:
        yield made


@pytest.fixture
def daemon(sandbox: Sandbox) -> Iterator[DaemonProcess]:
    running = DaemonProcess(sandbox)
    running.start()
    yield running
    running.kill()


def requests(model: int, words: str) -> list[dict[str, Any]]:
    """Return the model's requests that contain these words."""
    with urllib.request.urlopen(f"http://127.0.0.1:{model}/requests") as reply:
        return [each for each in json.load(reply) if any(words in said for said in each["said"])]


async def warm(client: Client, repository: Path) -> worktree_pb2.Spare:
    """Wait until a warm agent is in the spare."""

    async def look() -> worktree_pb2.Spare:
        pool = await client.worktrees.GetPool(worktree_pb2.GetPoolRequest(repo=str(repository)))
        assert [spare.warm_agent for spare in pool.spares] == [True], pool
        return pool.spares[0]

    return await eventually(look)


def agents(sandbox: Sandbox, session_id: str) -> list[psutil.Process]:
    """Return the Claude Codes with an id, without children before their exec."""
    found = {
        process.pid: process
        for process in sandbox.processes()
        if process.environ().get("RAMET_SESSION") == session_id and process.name() == "claude"
    }
    return [process for process in found.values() if process.ppid() not in found]


@pytest.mark.smoke
async def test_a_session_continues_with_the_warm_agent_in_its_tree(
    client: Client, sandbox: Sandbox, model: int
) -> None:
    repository = sandbox.repository()
    await client.create(repository, name="first")
    spare = await warm(client, repository)
    (waiting,) = agents(sandbox, spare.id)

    steps = [
        {
            "tool": "Bash",
            "input": {"command": "echo $RAMET_BRANCH:$RAMET_PORT_0:$RAMET_SESSION_NAME", "description": "x"},
        }
    ]
    session = await client.create(repository, script(*steps), name="second", mode=EDITS, model="opus")
    assert session.id == spare.id
    await client.reach("second", WAITING)
    assert sandbox.ctl("approve", "second").code == 0
    await client.reach("second", IDLE)
    (agent,) = agents(sandbox, session.id)
    assert agent.pid == waiting.pid
    log = await client.log("second")
    outputs = [result.text for event in log for result in event.user_message.results]
    assert outputs == [f"ramet/second:{session.ports[0]}:second"]
    assert [event.agent_started.generation for event in log if event.HasField("agent_started")] == [1]
    asked = requests(model, "RAMET_BRANCH")
    assert "opus" in asked[0]["model"]
    assert any("git branch --show-current" in word for word in agent.cmdline()), "it saw no branch"
    frames = [json.loads(event.frame) for event in await client.log("second", frames=True) if event.frame]
    (began, *_) = [frame for frame in frames if frame.get("subtype") == "init"]
    assert began["permissionMode"] == "acceptEdits"
    assert {"name": "ramet", "status": "connected"} in [
        {key: server[key] for key in ("name", "status")} for server in began["mcp_servers"]
    ]
    await client.send("second", "and again")
    await eventually(lambda: requests(model, "and again"))
    await warm(client, repository)


async def test_an_agent_that_does_not_fit_ends_and_another_is_started(client: Client, sandbox: Sandbox) -> None:
    repository = sandbox.repository()
    await client.create(repository, name="first")
    spare = await warm(client, repository)
    (waiting,) = agents(sandbox, spare.id)

    session = await client.create(repository, "hello", name="second", environment={"ANTHROPIC_MODEL": "sonnet"})
    assert session.id == spare.id
    await client.reach("second", IDLE)
    (agent,) = agents(sandbox, session.id)
    assert agent.pid != waiting.pid
    assert not waiting.is_running()
    assert agent.environ()["ANTHROPIC_MODEL"] == "sonnet"


@pytest.mark.parametrize("point", ["warm.taken", "launch.stored"])
async def test_a_daemon_that_is_killed_at_the_claim_leaves_one_agent_for_the_conversation(
    daemon: DaemonProcess, sandbox: Sandbox, point: str
) -> None:
    repository = sandbox.repository()
    async with connected(sandbox) as client:
        await client.create(repository, name="first")
        await warm(client, repository)
    daemon.kill()
    daemon.start(RAMET_FAILPOINT=point)
    async with connected(sandbox) as client:
        spare = await warm(client, repository)
        with contextlib.suppress(grpc.aio.AioRpcError):
            await client.create(repository, "hello", name="second")
        process = daemon.process
        assert process is not None
        await eventually(lambda: process.poll() is not None)
    (waiting,) = agents(sandbox, spare.id)

    daemon.start()
    async with connected(sandbox) as client:
        session = await client.reach("second", IDLE)
        assert session.turns == 1
        (agent,) = agents(sandbox, session.id)
        assert (agent.pid == waiting.pid) == (point == "launch.stored")
