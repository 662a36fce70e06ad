"""`attach --native` with the real Claude Code in a terminal: its turn is part of the session, even
if either side is killed."""

import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from ramet.v1 import event_pb2, session_pb2

from tests.support.agents import CLAUDE, script
from tests.support.client import Terminal
from tests.support.daemon import (
    IDLE,
    PAUSED,
    Client,
    DaemonProcess,
    Sandbox,
    connected,
    daemon_process,
    make_sandbox,
)
from tests.support.eventually import eventually

pytestmark = pytest.mark.real_cli


@pytest.fixture(scope="module")
def running(model: int) -> Iterator[DaemonProcess]:
    with make_sandbox(model_port=model, real_cli=True) as sandbox:
        onboard(sandbox)
        with daemon_process(sandbox) as daemon:
            sandbox.repository()
            yield daemon


@pytest.fixture
async def client(running: DaemonProcess) -> AsyncIterator[Client]:
    async with connected(running.sandbox) as connection:
        yield connection


def onboard(sandbox: Sandbox) -> None:
    """Write the settings of a person who has used Claude Code before, so that it asks for no theme
    and no key.

    Before any agent starts: a running Claude Code writes the same file, and one of the two writers
    would lose.
    """
    file = sandbox.root / "claude" / ".claude.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    keys = {"approved": ["scripted"], "rejected": []}
    file.write_text(json.dumps({"hasCompletedOnboarding": True, "theme": "dark", "customApiKeyResponses": keys}))


def native(sandbox: Sandbox, name: str) -> Terminal:
    command = [str(Path(sys.executable).with_name("rametctl")), "attach", name, "--native"]
    return Terminal(command, {**sandbox.environ, "TERM": "xterm-256color"}, sandbox.root, 120, 40)


def ends(events: list[event_pb2.Event]) -> list[event_pb2.TurnEnded]:
    return [event.turn_ended for event in events if event.WhichOneof("payload") == "turn_ended"]


async def after(client: Client, name: str, turns: int) -> session_pb2.Session:
    async def look() -> session_pb2.Session:
        session = await client.get(name)
        assert (session.turns, session.state) == (turns, IDLE), (session.turns, session.state_reason)
        return session

    return await eventually(look)


async def test_a_turn_in_claude_code_itself_is_part_of_the_session(running: DaemonProcess, client: Client) -> None:
    sandbox = running.sandbox
    await client.create(sandbox.root / "repo", script({"text": "the first answer"}), name="mine")
    before = await client.reach("mine", IDLE)
    with native(sandbox, "mine") as terminal:
        terminal.shows("the first answer")
        held = await client.get("mine")
        assert (held.state, held.agent_alive) == (PAUSED, False)
        assert held.state_reason.startswith("attached at pts/")
        await client.send("mine", script({"text": "the third answer"}))
        terminal.type(script({"text": "the second answer"}))
        terminal.type("\r")
        terminal.shows("● the second answer")
        running.kill()  # the person's program does not notice
        running.start()
        terminal.type("/exit")
        terminal.shows("Exit the CLI")
        terminal.type("\r")
        assert terminal.ends() == 0
    session = await after(client, "mine", 3)
    ended = ends(await client.log("mine"))
    assert [end.text for end in ended] == ["the first answer", "the second answer", "the third answer"]
    assert ended[1].cost_usd == pytest.approx(ended[0].cost_usd)
    assert session.cost_usd == pytest.approx(sum(end.cost_usd for end in ended))
    assert session.conversation_id == before.conversation_id


async def test_a_killed_claude_code_gives_the_session_back(running: DaemonProcess, client: Client) -> None:
    sandbox = running.sandbox
    await client.create(sandbox.root / "repo", script({"text": "before it"}), name="killed")
    await client.reach("killed", IDLE)
    with native(sandbox, "killed") as terminal:
        terminal.shows("before it")
        os.kill(terminal.process.pid, signal.SIGKILL)
        assert terminal.ends() == -signal.SIGKILL
    await after(client, "killed", 1)
    await client.send("killed", script({"text": "and after it"}))
    await after(client, "killed", 2)


async def test_a_conversation_that_a_person_has_open_is_not_resumed(running: DaemonProcess, client: Client) -> None:
    sandbox = running.sandbox
    await client.create(sandbox.root / "repo", script({"text": "before it"}), name="by-hand")
    made = await client.reach("by-hand", IDLE)
    environ = {**sandbox.environ, "TERM": "xterm-256color", "CLAUDE_CODE_SANDBOXED": "1"}
    command = [str(CLAUDE), "--resume", made.conversation_id, "--permission-mode", "default"]
    with Terminal(command, environ, Path(made.worktree), 120, 40) as terminal:
        terminal.shows("before it")
        await client.send("by-hand", script({"text": "the last answer"}))

        async def held() -> bool:
            session = await client.get("by-hand")
            return session.state_reason == f"attached (pid {terminal.process.pid})" and not session.agent_alive

        await eventually(held)
        terminal.type(script({"text": "typed by hand"}))
        terminal.type("\r")
        terminal.shows("● typed by hand")
        terminal.type("/exit")
        terminal.shows("Exit the CLI")
        terminal.type("\r")
        assert terminal.ends() == 0
    await after(client, "by-hand", 3)
    assert [end.text for end in ends(await client.log("by-hand"))] == ["before it", "typed by hand", "the last answer"]
