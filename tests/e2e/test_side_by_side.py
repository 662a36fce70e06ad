"""Several sessions with the real Claude Code CLI: forks and rewinds of a conversation, and the
radar's warnings."""

import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from ramet.v1 import common_pb2, session_pb2, worktree_pb2

from tests.support.agents import bash, script, write_here
from tests.support.daemon import IDLE, Client, DaemonProcess
from tests.support.eventually import eventually

pytestmark = pytest.mark.real_cli

EDITS = common_pb2.PERMISSION_MODE_ACCEPT_EDITS
BYPASS = common_pb2.PERMISSION_MODE_BYPASS_PERMISSIONS


def asked(model: int, word: str) -> list[str]:
    """Return the texts of the model's newest request that contains a word."""
    with urllib.request.urlopen(f"http://127.0.0.1:{model}/requests") as reply:
        requests: list[dict[str, Any]] = json.load(reply)
    for request in reversed(requests):
        said: list[str] = request["said"]
        if any(word in each for each in said):
            return said
    return []


async def test_a_fork_knows_what_was_said_and_a_rewound_conversation_no_longer_does(
    daemon: DaemonProcess, client: Client, model: int
) -> None:
    repository = daemon.sandbox.repository()
    await client.create(
        repository, script(write_here("a.txt", "one\n"), {"text": "FIRST-ANSWER"}), name="lead", mode=EDITS
    )
    await client.reach("lead", IDLE)
    again = script(write_here("a.txt", "two\n"), {"text": "SECOND-ANSWER"})
    await client.sessions.SendPrompt(session_pb2.SendPromptRequest(session="lead", prompt=again))
    await eventually(lambda: two_turns(client))
    lead = await client.get("lead")

    request = session_pb2.ForkSessionRequest(session="lead", prompt=script({"text": "FORK-ANSWER"}), name="fork")
    made: Any = await client.sessions.ForkSession(request)
    fork = await client.reach("fork", IDLE)
    assert (Path(fork.worktree) / "a.txt").read_text() == "two\n"
    heard = " ".join(asked(model, "FORK-ANSWER"))
    assert "FIRST-ANSWER" in heard
    assert "SECOND-ANSWER" in heard
    assert made.session.conversation_id != lead.conversation_id
    assert fork.cost_usd < lead.cost_usd  # the original's cost is not counted again

    listed: Any = await client.worktrees.ListCheckpoints(worktree_pb2.ListCheckpointsRequest(session="lead"))
    first = next(each for each in listed.checkpoints if each.turn == 1)
    rewind = worktree_pb2.RewindSessionRequest(session="lead", checkpoint=first.id)
    await client.worktrees.RewindSession(rewind)
    assert (Path(lead.worktree) / "a.txt").read_text() == "one\n"
    send = session_pb2.SendPromptRequest(session="lead", prompt=script({"text": "THIRD-ANSWER"}))
    await client.sessions.SendPrompt(send)
    await eventually(lambda: bool(asked(model, "THIRD-ANSWER")))
    await client.reach("lead", IDLE)
    heard = " ".join(asked(model, "THIRD-ANSWER"))
    assert "FIRST-ANSWER" in heard
    assert "SECOND-ANSWER" not in heard


async def two_turns(client: Client) -> bool:
    session = await client.get("lead")
    return session.turns == 2 and session.state == IDLE


async def test_working_agents_get_one_warning_of_a_siblings_conflict(
    daemon: DaemonProcess, client: Client, model: int
) -> None:
    repository = daemon.sandbox.repository()
    for name in ("left", "right"):
        steps = (
            write_here("dir0/file0.txt", f"line one by {name}\nline two\n"),
            bash("until [ -e go ]; do sleep 0.05; done"),
            {"text": f"{name} is done"},
        )
        await client.create(repository, script(*steps), name=name, mode=BYPASS)

    async def red() -> bool:
        request = worktree_pb2.ListConflictsRequest(repo=str(repository))
        answer: Any = await client.worktrees.ListConflicts(request)
        return any(each.red for each in answer.conflicts)

    await eventually(red)

    for name in ("left", "right"):
        session = await client.get(name)
        (Path(session.worktree) / "go").touch()
    for name, other in (("left", "right"), ("right", "left")):
        session = await client.reach(name, IDLE)
        heard = [text for text in asked(model, f"The session '{other}'") if "will not merge" in text]
        assert len(heard) == 1
        assert "dir0/file0.txt, your line 1, its line 1" in heard[0]
        assert session.turns == 1  # the warning has come with the command's result
