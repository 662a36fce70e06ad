"""A rewind that is killed at each of its instants is carried through by the next daemon, and nothing that was in the tree is lost."""

from pathlib import Path

import pytest
from ramet.v1 import common_pb2, session_pb2, worktree_pb2

from tests.crash.test_failpoints import die_in, start_to_die
from tests.support.agents import script
from tests.support.daemon import IDLE, Client, DaemonProcess, Sandbox, connected, git
from tests.support.eventually import eventually

pytestmark = pytest.mark.crash

EDITS = common_pb2.PERMISSION_MODE_ACCEPT_EDITS


def write(name: str, text: str) -> dict[str, object]:
    return {"tool": "Write", "input": {"file_path": name, "content": text}}


async def kept(client: Client, number: int) -> list[worktree_pb2.Checkpoint]:
    async def look() -> list[worktree_pb2.Checkpoint]:
        request = worktree_pb2.ListCheckpointsRequest(session="made")
        found = list((await client.worktrees.ListCheckpoints(request, metadata=client.metadata)).checkpoints)
        assert len(found) >= number
        return found

    return await eventually(look)


async def test_a_rewind_that_is_killed_is_carried_through(sandbox: Sandbox, repository: Path) -> None:
    daemon = DaemonProcess(sandbox)
    daemon.start()
    async with connected(sandbox) as client:
        await client.create(repository, script(write("one.txt", "1\n"), {"text": "first"}), name="made", mode=EDITS)
        made = await client.reach("made", IDLE)
        await kept(client, 2)
    tree = Path(made.worktree)
    (tree / "two.txt").write_text("2\n")
    git(tree, "add", "two.txt")
    git(tree, "commit", "-qm", "two")
    (tree / "by-hand").write_text("mine\n")
    daemon.kill()
    daemon.start(RAMET_FAILPOINT="rewind.intended")

    request = worktree_pb2.RewindSessionRequest(session="made", checkpoint="1", request_id="the one")

    async def rewind(client: Client) -> worktree_pb2.RewindSessionResponse:
        return await client.worktrees.RewindSession(request, metadata=client.metadata)

    await die_in(daemon, sandbox, rewind)
    for step in ("agent-ended", "kept", "files-written", "branch-moved", "recorded"):
        start_to_die(daemon, f"rewind.{step}")
    daemon.start()

    assert not [name for name in ("one.txt", "two.txt", "by-hand") if (tree / name).exists()]
    assert git(tree, "rev-parse", "HEAD") == made.base_commit
    assert git(tree, "status", "--porcelain") == ""
    async with connected(sandbox) as client:
        answer = await rewind(client)  # the same call: what was told of it, and no second rewind
        assert git(tree, "show", f"{answer.before.commit}:by-hand") == "mine"
        assert git(tree, "show", f"{answer.before.commit}:two.txt") == "2"
        session = await client.get("made")
        assert session.conversation_id == answer.session.conversation_id != made.conversation_id
        await client.send("made", script({"text": "goes on"}))
        assert (await eventually(lambda: turned(client))).state == session_pb2.SESSION_STATE_IDLE
    daemon.kill()


async def turned(client: Client) -> session_pb2.Session:
    session = await client.get("made")
    assert session.turns == 2
    assert session.state == IDLE
    return session
