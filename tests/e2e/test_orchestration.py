"""Sessions that work together, with the real Claude Code CLI: it calls the daemon's tools over MCP;
only the model is scripted."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from ramet.v1 import attention_pb2, common_pb2, session_pb2

from tests.support.agents import script
from tests.support.daemon import IDLE, PAUSED, Client, DaemonProcess, connected, daemon_process, make_sandbox
from tests.support.eventually import eventually
from tests.support.family import Step, bash, payloads, sessions, tool_results

pytestmark = pytest.mark.real_cli

BYPASS = common_pb2.PERMISSION_MODE_BYPASS_PERMISSIONS
NAMES = ("kid-a", "kid-b", "kid-c")


@pytest.fixture(scope="module")
def daemon(model: int) -> Iterator[DaemonProcess]:
    config = "[permissions]\nallow_bypass = true\n"
    with make_sandbox(model_port=model, real_cli=True, config=config) as sandbox, daemon_process(sandbox) as running:
        yield running


@pytest.fixture(scope="module")
def repository(daemon: DaemonProcess) -> Path:
    return daemon.sandbox.repository()


@pytest.fixture
async def client(daemon: DaemonProcess) -> AsyncIterator[Client]:
    """Yield stubs; end the sessions after each test, as each has a Claude Code in memory."""
    async with connected(daemon.sandbox) as connection:
        yield connection
        for session in (await sessions(connection)).values():
            if session.agent_alive:
                request = session_pb2.StopSessionRequest(session=session.id)
                await connection.sessions.StopSession(request, metadata=connection.metadata)


def call(called: str, /, **arguments: object) -> Step:
    return {"tool": f"mcp__ramet__{called}", "input": arguments}


def child(name: str) -> str:
    """Return a child's prompt: it writes a file, reports, and sends a message."""
    return script(
        bash(f"echo {name} > {name}.txt"), call("report_result", text=f"{name} has written"), {"text": f"{name} done"}
    )


async def die_at(daemon: DaemonProcess, point: str) -> None:
    """Start a daemon that dies at a failpoint, and wait for its death; the previous one may have
    caused it."""
    daemon.start(wait=False, RAMET_FAILPOINT=point)
    assert daemon.process is not None
    assert await asyncio.to_thread(daemon.process.wait, 30) == -9, point


async def test_a_lead_and_three_children_finish_over_kills_in_spawn_wait_and_message(
    daemon: DaemonProcess, client: Client, repository: Path
) -> None:
    go, ready = daemon.sandbox.root / "go", daemon.sandbox.root / "ready"
    steps = [
        bash(f"touch {ready}; until [ -e {go} ]; do sleep 0.05; done"),
        *(call("spawn_session", prompt=child(name), name=name) for name in NAMES),
        call("wait_for_sessions", sessions=list(NAMES)),
        *(call("get_diff", session=name) for name in NAMES),
        call("send_message", session="kid-a", text="well done"),
        call("report_result", text="three children have written three files"),
        {"text": "all done"},
    ]
    made = await client.create(repository, script(*steps), name="lead", mode=BYPASS)
    await eventually(ready.exists)
    daemon.kill()
    go.touch()
    await die_at(daemon, "create.inserted")  # the first child is stored, its parent has no answer
    await die_at(daemon, "create.worktree-made")  # the second is half created
    await die_at(daemon, "wait.begun")
    await die_at(daemon, "message.committed")
    daemon.start()
    async with connected(daemon.sandbox) as later:
        lead = await later.reach("lead", IDLE)
        for name in NAMES:
            await later.reach(name, IDLE)

        known = await sessions(later)
        assert {name for name, session in known.items() if session.parent_id == made.id} == set(NAMES)
        assert (lead.turns, lead.conversation_id) == (1, made.conversation_id)
        for name in NAMES:
            assert (Path(known[name].worktree) / f"{name}.txt").read_text() == f"{name}\n"
        answers = await tool_results(later, "lead")
        assert len(answers) == len(steps) - 1
        waited = json.loads(answers[4])
        assert waited["done"] is True
        assert {member["name"]: member["result"] for member in waited["sessions"]} == {
            name: f"{name} has written" for name in NAMES
        }
        for name, answer in zip(NAMES, answers[5:8], strict=True):
            assert f"+{name}" in json.loads(answer)["patch"]
        log = await later.log("kid-a")
        queued = Counter(event.prompt_queued.prompt.text for event in payloads(log, "prompt_queued"))
        received = Counter(event.prompt_received.prompt_id for event in payloads(log, "prompt_received"))
        assert queued["well done"] == 1
        assert set(received.values()) == {1}
        assert len(received) == 2


async def test_a_sessions_own_shell_makes_children_and_may_do_nothing_that_is_the_persons(
    client: Client, repository: Path
) -> None:
    await client.create(repository, script(bash("true")), name="asks")
    commands = (
        "approve asks", "set types --budget 1000", "new --mode bypassPermissions nothing", "new --name typed nothing",
    )  # fmt: skip
    steps = [bash(" ; ".join(f"rametctl {each}; echo code $?" for each in commands) + " 2>&1"), {"text": "done"}]
    lead = await client.create(repository, script(*steps), name="types", mode=common_pb2.PERMISSION_MODE_ACCEPT_EDITS)

    async def asked() -> str:
        listed = await client.attention.ListRequests(
            attention_pb2.ListRequestsRequest(session="types"), metadata=client.metadata
        )
        return listed.requests[0].id if listed.requests else ""

    identity = await eventually(asked)
    resolution = attention_pb2.Resolution(approve=attention_pb2.Approval())
    await client.attention.ResolveRequest(
        attention_pb2.ResolveRequestRequest(request=identity, resolution=resolution), metadata=client.metadata
    )
    await client.reach("types", IDLE)

    (words,) = await tool_results(client, "types")
    codes = [line for line in words.splitlines() if line.startswith("code ")]
    assert codes == ["code 1", "code 1", "code 1", "code 0"], words
    typed = await client.get("typed")
    assert (typed.parent_id, typed.mode) == (lead.id, lead.mode)
    assert (await client.get("types")).HasField("budget_usd") is False
    assert (await client.get("asks")).attention <= 1
    denied = payloads(await client.log("types"), "call_denied")
    assert [event.call_denied.method.rpartition("/")[2] for event in denied] == [
        "ResolveRequest", "UpdateSession", "CreateSession",
    ]  # fmt: skip
    assert {event.principal for event in denied} == {f"session:{lead.id}"}


async def test_a_budget_stops_a_turn_within_one_call_and_a_raise_continues_it(client: Client, repository: Path) -> None:
    steps = [bash(f"touch f{number}") for number in range(12)]
    await client.create(repository, script(*steps, {"text": "done"}), name="spends", mode=BYPASS, budget_usd=0.02)
    session = await client.reach("spends", PAUSED)
    assert 0.02 <= session.cost_usd + 1e-9 <= 0.025 + 1e-9
    assert session.state_reason.endswith(
        "of $0.02 spent for this session: `rametctl set spends --budget USD` continues it"
    )
    assert len(payloads(await client.log("spends"), "warning")) == 1
    request = session_pb2.UpdateSessionRequest(
        session_id="spends", session=session_pb2.Session(budget_usd=5.0), update_mask=FieldMask(paths=["budget_usd"])
    )
    await client.sessions.UpdateSession(request, metadata=client.metadata)
    await client.reach("spends", IDLE)


async def test_the_calls_of_subagents_are_judged_and_their_costs_counted(client: Client, repository: Path) -> None:
    inner = script(bash("touch forbidden"), {"text": "tried"})
    agent: Step = {
        "tool": "Agent",
        "input": {"description": "look around", "prompt": inner, "subagent_type": "general-purpose"},
    }
    rule = attention_pb2.CreateRuleRequest(
        repo=str(repository), effect=attention_pb2.RULE_EFFECT_DENY, rule="Bash(touch forbidden:*)"
    )
    await client.create(repository, name="registers")
    made = (await client.attention.CreateRule(rule, metadata=client.metadata)).rule
    await client.create(repository, script(agent, {"text": "done"}), name="delegates", mode=BYPASS)
    session = await client.reach("delegates", IDLE)

    listed = await client.attention.ListRules(attention_pb2.ListRulesRequest(), metadata=client.metadata)
    assert [each.matches for each in listed.rules if each.id == made.id] == [1]
    assert not (Path(session.worktree) / "forbidden").exists()
    assert session.cost_usd >= 4 * 0.005 - 1e-9
