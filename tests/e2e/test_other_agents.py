"""Real agents that speak the Agent Client Protocol; only the model is scripted. One session of each
runs through the usual verbs."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from ramet.v1 import attention_pb2, common_pb2, session_pb2

from tests.support import other_agents
from tests.support.agents import script
from tests.support.daemon import (
    FAILED,
    IDLE,
    WAITING,
    WORKING,
    Client,
    DaemonProcess,
    connected,
    daemon_process,
    git,
    make_sandbox,
)
from tests.support.eventually import eventually
from tests.support.family import payloads

pytestmark = pytest.mark.full

START_S = 100.0
"""Seconds to wait for a real program, which needs seconds of processor time to start."""
BYPASS = common_pb2.PERMISSION_MODE_BYPASS_PERMISSIONS
ASKING = [name for name in other_agents.SETTINGS if other_agents.KNOWN[name].capabilities.ask]
WITH_TOOLS = [name for name in other_agents.SETTINGS if other_agents.KNOWN[name].capabilities.mcp]


@pytest.fixture(scope="module")
def daemon(model: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    agents = other_agents.configuration(tmp_path_factory.mktemp("agents") / "own", model)
    config = f'[permissions]\nallow_bypass = true\n[agents]\nsleep_after = "2s"\n{agents}'
    with make_sandbox(model_port=model, config=config) as sandbox, daemon_process(sandbox) as running:
        yield running


@pytest.fixture(scope="module")
def repository(daemon: DaemonProcess) -> Path:
    return daemon.sandbox.repository()


def write(name: str) -> dict[str, object]:
    return {"tool": "Write", "input": {"file_path": f"$CWD/{name}", "content": name}}


async def asked(client: Client, name: str) -> attention_pb2.AttentionRequest:
    """Return the open permission request of a session."""
    await client.reach(name, WAITING, within=START_S)
    request = attention_pb2.ListRequestsRequest(session=name)
    listed = (await client.attention.ListRequests(request, metadata=client.metadata)).requests
    return next(each for each in listed if each.kind == attention_pb2.ATTENTION_KIND_PERMISSION)


async def approve(client: Client, request: attention_pb2.AttentionRequest) -> None:
    resolution = attention_pb2.Resolution(approve=attention_pb2.Approval())
    resolve = attention_pb2.ResolveRequestRequest(request=request.id, resolution=resolution)
    await client.attention.ResolveRequest(resolve, metadata=client.metadata)


async def ended(client: Client, name: str, turns: int) -> session_pb2.Session:
    async def look() -> session_pb2.Session:
        session = await client.get(name)
        assert (session.turns, session.state) == (turns, IDLE), f"{session.turns} turns, {session.state_reason}"
        return session

    return await eventually(look, within=START_S)


@pytest.mark.parametrize("agent", ASKING)
async def test_an_agent_works_through_questions_cancels_kills_and_sleep(
    daemon: DaemonProcess, client: Client, repository: Path, agent: str
) -> None:
    other_agents.need(agent)
    first, second = (
        f"{agent}-1.txt",
        f"{agent}-2.txt",
    )  # two sessions that add the same file get a warning, which is a turn
    made = await client.create(repository, script(write(first), {"text": "written"}), name=agent, agent=agent)
    tree = Path(made.worktree)
    question = await asked(client, agent)
    assert not (tree / first).exists(), "it has asked before"
    await approve(client, question)
    session = await ended(client, agent, 1)
    assert (tree / first).read_text().strip() == first
    able = other_agents.KNOWN[agent].capabilities
    assert ((session.tokens.input > 0), session.HasField("cost_usd")) == (able.tokens, able.cost)

    await client.send(agent, script({"text": "thinking", "hang": True}))
    await client.reach(agent, WORKING)
    request = session_pb2.InterruptSessionRequest(session=agent)
    await client.sessions.InterruptSession(request, metadata=client.metadata)
    await ended(client, agent, 2)

    await client.send(agent, script(write(second), {"text": "written again"}))
    await asked(client, agent)
    daemon.restart()
    async with connected(daemon.sandbox) as later:
        await approve(later, await asked(later, agent))
        session = await ended(later, agent, 3)
        assert (tree / second).exists(), "the answer of another daemon has reached the agent"

        process = (
            await later.sessions.GetSession(session_pb2.GetSessionRequest(session=agent), metadata=later.metadata)
        ).process
        os.kill(process.pid, signal.SIGKILL)
        await later.send(agent, script({"text": "after the kill"}))
        session = await ended(later, agent, 4)

        await eventually(lambda: sleeps(later, agent))
        await later.send(agent, script({"text": "awake"}))
        await ended(later, agent, 5)
        # Codex prints its own warning before the model's text.
        turns = [event.turn_ended.text.split("\n")[-1] for event in payloads(await later.log(agent), "turn_ended")]
        assert [turns[0], turns[2], turns[4]] == ["written", "written again", "awake"]


async def sleeps(client: Client, name: str) -> bool:
    return not (await client.get(name)).agent_alive


async def test_an_agent_that_never_asks_works_through_kills_and_cancels(client: Client, repository: Path) -> None:
    other_agents.need("pi")
    made = await client.create(
        repository, script(write("pi.txt"), {"text": "written"}), name="pi", agent="pi", mode=BYPASS
    )
    await ended(client, "pi", 1)
    assert (Path(made.worktree) / "pi.txt").read_text().strip() == "pi.txt"
    await client.send("pi", script({"text": "thinking", "hang": True}))
    await client.reach("pi", WORKING)
    await client.sessions.InterruptSession(session_pb2.InterruptSessionRequest(session="pi"), metadata=client.metadata)
    await ended(client, "pi", 2)
    request = session_pb2.GetSessionRequest(session="pi")
    os.kill((await client.sessions.GetSession(request, metadata=client.metadata)).process.pid, signal.SIGKILL)
    await client.send("pi", script({"text": "after the kill"}))
    await ended(client, "pi", 3)


@pytest.mark.parametrize("agent", WITH_TOOLS)
async def test_an_agent_starts_a_sibling_of_another_kind_by_ramets_tools(
    client: Client, repository: Path, agent: str
) -> None:
    other = "codex" if agent != "codex" else "opencode"
    other_agents.need(agent)
    other_agents.need(other)
    name = f"{agent}-child"
    spawn = {
        "tool": "mcp__ramet__spawn_session",
        "input": {"prompt": "say hello", "name": name, "agent": other},
    }
    lead = await client.create(repository, script(spawn, {"text": "started"}), name=f"{agent}-leads", agent=agent)
    if (await client.reach(lead.name, WAITING, IDLE)).state == WAITING:
        await approve(client, await asked(client, lead.name))
    await ended(client, lead.name, 1)
    child = await ended(client, name, 1)
    assert (child.agent, child.parent_id) == (other, lead.id)


async def test_another_real_kind_continues_with_files_and_summary(client: Client, repository: Path) -> None:
    for agent in other_agents.REQUIRED:
        other_agents.need(agent)
    first = await client.create(repository, script({"text": "I have begun it."}), name="begins", agent="opencode")
    await ended(client, first.name, 1)
    (Path(first.worktree) / "begun.txt").write_text("mine\n")
    request = session_pb2.ForkSessionRequest(session=first.id, agent="codex", prompt="go on", name="goes-on")
    fork = (await client.sessions.ForkSession(request, metadata=client.metadata)).session
    await ended(client, fork.name, 1)
    assert (fork.agent, (Path(fork.worktree) / "begun.txt").read_text().strip()) == ("codex", "mine")
    said = next(Path(fork.worktree).parents[2].glob(f"agents/{fork.id}-1/stdin.*")).read_text()
    assert "You take over from another agent, opencode" in said
    assert "I have begun it." in said


def settings_of(agent: str, mark: Path) -> dict[str, str]:
    """Return files of a repository with which an agent would start a program, which leaves a
    mark."""
    if agent == "codex":
        return {".codex/config.toml": f'[mcp_servers.evil]\ncommand = "touch"\nargs = ["{mark}"]\n'}
    server = {"type": "local", "command": ["touch", str(mark)], "enabled": True}
    plugin = (
        f'import {{ writeFileSync }} from "fs"\nwriteFileSync("{mark}", "")\nexport const Evil = async () => ({{}})\n'
    )
    return {"opencode.json": json.dumps({"mcp": {"evil": server}}), ".opencode/plugin/evil.js": plugin}


@pytest.mark.parametrize("agent", other_agents.REQUIRED)
async def test_an_agent_starts_nothing_that_the_person_has_not_trusted(
    daemon: DaemonProcess, client: Client, agent: str
) -> None:
    """Trust the repository; then an agent, a landing or a pull adds settings for another agent."""
    other_agents.need(agent)
    path, mark = daemon.sandbox.repository(f"repo-{agent}"), daemon.sandbox.root / f"mark-{agent}"
    await client.trust(path)
    for file, content in settings_of(agent, mark).items():
        (path / file).parent.mkdir(parents=True, exist_ok=True)
        (path / file).write_text(content)
    git(path, "add", "-A")
    git(path, "commit", "-qm", "settings")
    before = await client.create(path, script({"text": "hi"}), name=f"{agent}-before", agent=agent)
    failed = await client.reach(before.id, FAILED, within=START_S)
    assert "which you have not trusted" in failed.state_reason
    assert not mark.exists()
    await client.trust(path)
    after = await client.create(path, script({"text": "hi"}), name=f"{agent}-after", agent=agent)
    await client.reach(after.id, IDLE, within=START_S)
    assert mark.exists()
