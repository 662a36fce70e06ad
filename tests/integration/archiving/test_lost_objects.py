"""Objects that git has lost by accident: a removal names them, and with --force continues without
them."""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
from ramet.v1 import session_pb2, worktree_pb2

from tests.support.daemon import Client, Sandbox, connected, daemon_here, git, reason_of
from tests.support.doctor import findings
from tests.support.eventually import eventually

pytestmark = pytest.mark.full


@pytest.fixture
async def client(sandbox: Sandbox) -> AsyncIterator[Client]:
    async with daemon_here(sandbox), connected(sandbox) as client:
        yield client


async def checkpoint(client: Client, name: str) -> worktree_pb2.Checkpoint:
    request = worktree_pb2.CreateCheckpointRequest(session=name)
    return (await client.worktrees.CreateCheckpoint(request)).checkpoint


async def remove(client: Client, name: str, *, force: bool = False) -> session_pb2.DeleteSessionResponse:
    return await client.sessions.DeleteSession(session_pb2.DeleteSessionRequest(session=name, force=force))


def lose(repository: Path, revision: str) -> str:
    """Delete an object, as a disk or a `git prune` may. Return its name."""
    name = git(repository, "rev-parse", revision)
    (repository / ".git" / "objects" / name[:2] / name[2:]).unlink()
    return name


@pytest.mark.parametrize("part", ["", "^{tree}", ":only.txt"])
@pytest.mark.parametrize("there", [True, False], ids=["with its tree", "without its tree"])
async def test_rm_refuses_a_session_with_a_lost_checkpoint_in_one_line_unless_forced(
    client: Client, repository: Path, part: str, there: bool
) -> None:
    made = await client.create(repository, name="one")
    await eventually(lambda: client.checkpoints("one"))
    tree = Path(made.worktree)
    (tree / "only.txt").write_text("only in the checkpoint\n")
    made_commit = (await checkpoint(client, "one")).commit
    if there:
        (tree / "only.txt").write_text("also in the worktree\n")
    else:
        shutil.rmtree(tree)
    lost = lose(repository, f"{made_commit}{part}")

    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await remove(client, "one")

    assert reason_of(refused.value) == "WORK_AT_RISK", refused.value.details()
    words = refused.value.details() or ""
    assert "\n" not in words
    if there:
        assert "1 untracked (only.txt)" in words
    else:
        assert f"checkpoint 2, the last one of one, is damaged: git no longer has {lost[:12]}" in words
    item = (await client.worktrees.CollectGarbage(worktree_pb2.CollectGarbageRequest(dry_run=True))).items[0]
    assert (item.verdict, item.reason) == ("kept", words if not there else item.reason)

    removed = await remove(client, "one", force=True)

    assert any(lost[:12] in warning for warning in removed.warnings) != there, removed.warnings
    back = await client.worktrees.RestoreTrash(worktree_pb2.RestoreTrashRequest(entry="one"))
    assert (tree / "only.txt").exists() == there
    await remove(client, back.session.id, force=True)
    await client.worktrees.EmptyTrash(worktree_pb2.EmptyTrashRequest(entries=["one"]))
    assert not git(repository, "for-each-ref", "refs/ramet")


@pytest.mark.parametrize("part", ["", ":files", ":files/only.txt"])
async def test_an_archived_session_whose_work_git_has_lost_goes_by_force(
    client: Client, repository: Path, part: str
) -> None:
    made = await client.create(repository, name="one")
    (Path(made.worktree) / "only.txt").write_text("archived\n")
    await client.sessions.ArchiveSession(session_pb2.ArchiveSessionRequest(session="one"))
    lost = lose(repository, f"refs/ramet/archive/{made.id}{part}")

    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await remove(client, "one")

    assert reason_of(refused.value) == "WORK_AT_RISK", refused.value.details()
    assert f"the archive of one is damaged: git no longer has {lost[:12]}" in (refused.value.details() or "")

    removed = await remove(client, "one", force=True)

    assert any(lost[:12] in warning for warning in removed.warnings), removed.warnings
    await client.worktrees.RestoreTrash(worktree_pb2.RestoreTrashRequest(entry="one"))
    assert (Path(made.worktree) / "only.txt").read_text() == "archived\n"
    assert git(Path(made.worktree), "status", "--porcelain") == "?? only.txt"
    await client.sessions.ArchiveSession(session_pb2.ArchiveSessionRequest(session="one"))
    assert not await findings(client)
    await client.sessions.RestoreSession(session_pb2.RestoreSessionRequest(session="one"))
