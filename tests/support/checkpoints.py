"""Helpers for tests of checkpoints and rewinds: turns that write files, lists, rewinds."""

import json
from pathlib import Path

import pytest
from ramet.v1 import common_pb2, session_pb2, worktree_pb2

from tests.support.agents import script
from tests.support.daemon import IDLE, Client, DaemonProcess
from tests.support.eventually import eventually

EDITS = common_pb2.PERMISSION_MODE_ACCEPT_EDITS
START = worktree_pb2.CHECKPOINT_REASON_START
TURN = worktree_pb2.CHECKPOINT_REASON_TURN
REWIND = worktree_pb2.CHECKPOINT_REASON_REWIND


def write(name: str, text: str) -> dict[str, object]:
    return {"tool": "Write", "input": {"file_path": name, "content": text}}


async def count(client: Client, name: str, number: int) -> list[worktree_pb2.Checkpoint]:
    """Return a session's checkpoints once there are ``number`` of them."""

    async def look() -> list[worktree_pb2.Checkpoint]:
        found = await client.checkpoints(name)
        assert len(found) == number, [each.reason for each in found]
        return found

    return await eventually(look)


async def rewind(client: Client, name: str, checkpoint: str, **fields: object) -> worktree_pb2.RewindSessionResponse:
    request = worktree_pb2.RewindSessionRequest(session=name, checkpoint=checkpoint, **fields)  # type: ignore[arg-type]
    return await client.worktrees.RewindSession(request, metadata=client.metadata)


async def turn(client: Client, name: str, *steps: dict[str, object]) -> session_pb2.Session:
    before = (await client.get(name)).turns
    await client.send(name, script(*steps, {"text": "done"}))

    async def over() -> session_pb2.Session:
        session = await client.get(name)
        assert (session.state, session.turns) == (IDLE, before + 1)
        return session

    return await eventually(over)


@pytest.fixture
async def worked(client: Client, repository: Path) -> session_pb2.Session:
    """Return a session that has had two turns."""
    await client.create(repository, script(write("one.txt", "1\n"), {"text": "first"}), name="made", mode=EDITS)
    await client.reach("made", IDLE)
    await count(client, "made", 2)
    return await turn(client, "made", write("two.txt", "2\n"), write("dir0/file0.txt", "changed\n"))


def transcript(daemon: DaemonProcess, conversation_id: str) -> str:
    [file] = (daemon.sandbox.root / "claude").rglob(f"{conversation_id}.jsonl")
    return "".join(json.dumps(json.loads(line)) for line in file.read_text().splitlines())


async def at_work(client: Client) -> bool:
    return (await client.get("made")).state == session_pb2.SESSION_STATE_WORKING


async def has_turns(client: Client, turns: int) -> bool:
    return (await client.get("made")).turns == turns


async def with_reason(client: Client, reason: int) -> list[worktree_pb2.Checkpoint]:
    return [each for each in reversed(await client.checkpoints("made")) if each.reason == reason]
