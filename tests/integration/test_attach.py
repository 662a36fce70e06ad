"""Attach: a person has the conversation for a while, and their turns are part of the session
afterwards."""

import signal
from collections.abc import Awaitable, Iterator
from pathlib import Path

import grpc
import pytest
from ramet.v1 import common_pb2, event_pb2, session_pb2, worktree_pb2

from tests.support.agents import script
from tests.support.daemon import IDLE, PAUSED, WORKING, Client, DaemonProcess, Sandbox, daemon_process, make_sandbox
from tests.support.eventually import eventually
from tests.support.outside import attach, make_turn, process, register
from tests.support.running import client, repo_of, sandbox

__all__ = ["client", "sandbox"]

BYPASS = common_pb2.PERMISSION_MODE_BYPASS_PERMISSIONS


@pytest.fixture(scope="module")
def running() -> Iterator[DaemonProcess]:
    with make_sandbox(config="[permissions]\nallow_bypass = true\n") as sandbox, daemon_process(sandbox) as daemon:
        sandbox.repository()
        yield daemon


async def new(client: Client, running: DaemonProcess, name: str) -> session_pb2.Session:
    await client.create(repo_of(running), script({"text": "first"}), name=name)
    return await client.reach(name, IDLE)


def kinds(events: list[event_pb2.Event], kind: str) -> list[event_pb2.Event]:
    return [event for event in events if event.WhichOneof("payload") == kind]


async def turns(client: Client, name: str, number: int) -> session_pb2.Session:
    async def look() -> session_pb2.Session:
        session = await client.get(name)
        assert (session.turns, session.state) == (number, IDLE), (session.state_reason, session.turns)
        return session

    return await eventually(look)


async def test_turns_of_an_attached_person_count_and_queued_prompts_follow(
    client: Client, sandbox: Sandbox, running: DaemonProcess
) -> None:
    before = await new(client, running, "mine")
    with process() as person:
        launch = await attach(client, "mine", person.pid, mcp_command=["tools"])
        held = await client.get("mine")
        assert (held.state, held.state_reason, held.agent_alive) == (PAUSED, "attached at pts/7", False)
        argv = list(launch.argv)
        assert argv[1:3] == ["--resume", before.conversation_id]
        assert argv[argv.index("--permission-mode") + 1] == "default"
        assert argv[argv.index("--setting-sources") + 1] == "user", "the repository is not trusted"
        assert launch.environment["RAMET_SESSION"] == before.id
        await client.send("mine", script({"text": "afterwards"}))
        Path(before.worktree, "by-hand.txt").write_text("x\n")
        make_turn(sandbox, before.conversation_id, "do it by hand", "done by hand", cost=0.25)
        make_turn(sandbox, before.conversation_id, "and this", "stopp", cost=0.5, interrupted=True)
        person.send_signal(signal.SIGKILL)
        person.wait()
        session = await turns(client, "mine", before.turns + 3)

    events = await client.log("mine")
    prompts = [event.prompt_queued.prompt.text for event in kinds(events, "prompt_queued")]
    assert prompts[-3:] == [script({"text": "afterwards"}), "do it by hand", "and this"]
    ends = [event.turn_ended for event in kinds(events, "turn_ended")][-3:]
    assert [(end.text, round(end.cost_usd, 6)) for end in ends[:2]] == [("done by hand", 0.25), ("stopp", 0.5)]
    assert [end.terminal_reason for end in ends[:2]] == ["completed", "aborted_streaming"]
    assert ends[2].text == "afterwards"
    assert session.cost_usd == pytest.approx(before.cost_usd + 0.75 + ends[2].cost_usd)
    assert [event.warning.message for event in kinds(events, "warning")] == [
        "the session now includes 2 turns made at pts/7"
    ]
    with_files = [checkpoint for checkpoint in await client.checkpoints("mine") if checkpoint.files]
    assert [(checkpoint.turn, checkpoint.additions) for checkpoint in with_files] == [(before.turns + 2, 1)]


async def test_a_running_turn_is_interrupted_only_on_request(client: Client, running: DaemonProcess) -> None:
    await client.create(repo_of(running), script({"hang": True}), name="busy")
    await client.reach("busy", WORKING)
    with process() as person:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await attach(client, "busy", person.pid)
        assert "busy is working" in str(refused.value.details())
        await attach(client, "busy", person.pid, interrupt=True)
        assert (await client.get("busy")).state_reason == "attached at pts/7"
    await client.reach("busy", IDLE)


async def test_nothing_else_gets_the_session_meanwhile(client: Client, running: DaemonProcess) -> None:
    await new(client, running, "held")
    with process() as person, process() as other:
        await attach(client, "held", person.pid)
        await attach(client, "held", person.pid)  # a repeated call is the same one
        calls: list[Awaitable[object]] = [
            attach(client, "held", other.pid),
            client.sessions.ResumeSession(session_pb2.ResumeSessionRequest(session="held"), metadata=client.metadata),
            client.sessions.PauseSession(session_pb2.PauseSessionRequest(session="held"), metadata=client.metadata),
            client.sessions.ArchiveSession(session_pb2.ArchiveSessionRequest(session="held"), metadata=client.metadata),
            client.worktrees.RewindSession(
                worktree_pb2.RewindSessionRequest(session="held", checkpoint="1"), metadata=client.metadata
            ),
        ]
        for call in calls:
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await call
            assert "held is attached at pts/7" in str(refused.value.details())
        with pytest.raises(grpc.aio.AioRpcError):
            await attach(client, "held", 1)
    await client.reach("held", IDLE)


async def test_a_hold_of_the_person_outlasts_it(client: Client, running: DaemonProcess) -> None:
    await new(client, running, "paused")
    await client.sessions.PauseSession(session_pb2.PauseSessionRequest(session="paused"), metadata=client.metadata)
    with process() as person:
        await attach(client, "paused", person.pid)

    async def back() -> bool:
        session = await client.get("paused")
        return (session.state, "attached" in session.state_reason) == (PAUSED, False)

    await eventually(back)


async def test_turns_made_by_hand_are_reported_and_added_before_the_next(
    client: Client, sandbox: Sandbox, running: DaemonProcess
) -> None:
    before = await new(client, running, "by-hand")
    assert before.agent_alive
    make_turn(sandbox, before.conversation_id, "resumed in a terminal", "yes", cost=0.125)
    await client.send("by-hand", script({"text": "next"}))
    session = await turns(client, "by-hand", before.turns + 2)
    events = await client.log("by-hand")
    ends = [event.turn_ended.text for event in kinds(events, "turn_ended")]
    assert ends[-2:] == ["yes", "next"]
    assert [event.warning.message for event in kinds(events, "warning")] == [
        "the session now includes 1 turn made outside of Ramet"
    ]
    assert session.cost_usd > before.cost_usd + 0.125
    await client.send("by-hand", script({"text": "again"}))
    await turns(client, "by-hand", before.turns + 3)
    assert len(kinds(await client.log("by-hand"), "warning")) == 1


async def test_no_agent_starts_beside_a_program_that_has_the_conversation(
    client: Client, sandbox: Sandbox, running: DaemonProcess
) -> None:
    before = await new(client, running, "open")
    with process() as person:
        register(sandbox, before.conversation_id, person.pid)
        await client.send("open", script({"text": "next"}))

        async def held() -> bool:
            session = await client.get("open")
            return session.state_reason == f"attached (pid {person.pid})" and not session.agent_alive

        await eventually(held)
        make_turn(sandbox, before.conversation_id, "meanwhile", "yes", cost=0.5)
    await turns(client, "open", before.turns + 2)
    ends = [event.turn_ended.text for event in kinds(await client.log("open"), "turn_ended")]
    assert ends[-2:] == ["yes", "next"]


async def test_a_conversation_may_begin_in_the_agents_own_program(
    client: Client, sandbox: Sandbox, running: DaemonProcess
) -> None:
    made = await client.create(repo_of(running), name="fresh")
    with process() as person:
        argv = list((await attach(client, "fresh", person.pid)).argv)
        assert argv[1:3] == ["--session-id", made.conversation_id], "there is nothing to resume"
        folder = sandbox.root / "claude" / "projects" / "fresh"
        folder.mkdir(parents=True)
        (folder / f"{made.conversation_id}.jsonl").touch()
        make_turn(sandbox, made.conversation_id, "begin", "begun", cost=0.5)
    await turns(client, "fresh", 1)
    await client.send("fresh", script({"text": "next"}))
    await turns(client, "fresh", 2)
    started = kinds(await client.log("fresh"), "agent_started")
    assert [event.agent_started.resumed for event in started] == [True]


async def test_what_ran_in_the_agents_background_is_named(client: Client, running: DaemonProcess) -> None:
    server = {
        "tool": "Bash",
        "input": {"command": "sleep 1000", "description": "the server", "run_in_background": True},
    }
    await client.create(repo_of(running), script(server, {"text": "serves"}), name="serves", mode=BYPASS)
    await client.reach("serves", IDLE)
    with process() as person:
        launch = await attach(client, "serves", person.pid)
        assert ["the server" in warning or "sleep 1000" in warning for warning in launch.warnings] == [True]
