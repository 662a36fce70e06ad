"""Uncommitted work whose worktree is gone: changes that a branch has by now are not at risk."""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
from ramet.v1 import session_pb2, worktree_pb2

from tests.support.daemon import Client, Sandbox, connected, daemon_here, git, reason_of

pytestmark = pytest.mark.full


@pytest.fixture
async def client(sandbox: Sandbox) -> AsyncIterator[Client]:
    async with daemon_here(sandbox), connected(sandbox) as client:
        yield client


FILE = "dir0/file0.txt"


async def gone(client: Client, repository: Path, name: str, *, archived: bool) -> None:
    """Create a session with an uncommitted change, new file and deletion, whose worktree is
    gone."""
    tree = Path((await client.create(repository, name=name)).worktree)
    work(tree)
    if archived:
        await client.sessions.ArchiveSession(session_pb2.ArchiveSessionRequest(session=name))
    else:
        await client.worktrees.CreateCheckpoint(worktree_pb2.CreateCheckpointRequest(session=name))
        shutil.rmtree(tree)


def work(tree: Path) -> None:
    (tree / FILE).write_text("line one is another\nline two\n")
    (tree / "new.txt").write_text("new\n")
    (tree / "dir1" / "file1.txt").unlink(missing_ok=True)


def commit(tree: Path, message: str) -> None:
    git(tree, "add", "-A")
    git(tree, "commit", "-qm", message)


async def refusal(client: Client, name: str) -> str:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await client.sessions.DeleteSession(session_pb2.DeleteSessionRequest(session=name))
    assert reason_of(refused.value) == "WORK_AT_RISK"
    return refused.value.details() or ""


async def reason(client: Client, name: str) -> str:
    answer = await client.worktrees.CollectGarbage(worktree_pb2.CollectGarbageRequest(dry_run=True))
    (found,) = [item.reason for item in answer.items if item.name == name]
    return found


@pytest.mark.parametrize("archived", [False, True], ids=["checkpointed", "archived"])
@pytest.mark.parametrize("way", ["as it is", "and gone on from", "by a branch that is not merged"])
async def test_what_another_branch_brought_elsewhere_is_not_at_risk(
    client: Client, repository: Path, way: str, *, archived: bool
) -> None:
    await gone(client, repository, "one", archived=archived)
    assert "3 uncommitted" in await refusal(client, "one")

    git(repository, "checkout", "-q", "-b", "rescue")
    work(repository)
    commit(repository, "by another way")
    git(repository, "checkout", "-q", "main")
    if way != "by a branch that is not merged":
        (repository / "dir2" / "file2.txt").write_text("main goes on\n")
        commit(repository, "on")
        git(repository, "merge", "-q", "--squash", "rescue")
        commit(repository, "squashed")
        git(repository, "branch", "-D", "rescue")
    if way == "and gone on from":
        (repository / FILE).write_text("line one is another\nline two too\n")
        commit(repository, "further")

    assert "uncommitted" not in await reason(client, "one")
    await client.sessions.DeleteSession(session_pb2.DeleteSessionRequest(session="one"))
    assert not git(repository, "branch", "--list", "ramet/one")


@pytest.mark.parametrize("archived", [False, True], ids=["checkpointed", "archived"])
async def test_what_got_elsewhere_in_part_or_changed_is_at_risk(
    client: Client, repository: Path, *, archived: bool
) -> None:
    await gone(client, repository, "one", archived=archived)
    work(repository)
    (repository / "new.txt").unlink()
    commit(repository, "a part")
    assert "uncommitted" in await refusal(client, "one")

    (repository / "new.txt").write_text("something else\n")
    commit(repository, "of that name")

    assert "uncommitted" in await refusal(client, "one")
    if not archived:
        assert "uncommitted" in await reason(client, "one")
    # The session's own branch does not count, as it is deleted too.
    work(repository)
    (repository / "new.txt").write_text("new\n")
    git(repository, "add", "-A")
    tree = git(repository, "write-tree")
    git(
        repository,
        "update-ref",
        "refs/heads/ramet/one",
        git(repository, "commit-tree", "-p", "ramet/one", "-m", "x", tree),
    )
    assert "1 commit on no other branch" in await refusal(client, "one")
