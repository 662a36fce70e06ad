"""All pairs of concurrent calls on one session: each is done or refused with a reason, and the
result is consistent."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
from ramet.v1 import landing_pb2, session_pb2, worktree_pb2

from tests.support.daemon import IDLE, Client, git, reason_of
from tests.support.eventually import eventually

pytestmark = pytest.mark.full

Call = Callable[[Client, str], Awaitable[Any]]


def checkpoint(client: Client, name: str) -> Awaitable[Any]:
    return client.worktrees.CreateCheckpoint(worktree_pb2.CreateCheckpointRequest(session=name))


def fork(client: Client, name: str) -> Awaitable[Any]:
    return client.sessions.ForkSession(session_pb2.ForkSessionRequest(session=name))


def rewind(client: Client, name: str) -> Awaitable[Any]:
    return client.worktrees.RewindSession(worktree_pb2.RewindSessionRequest(session=name, checkpoint="1"))


def rewind_files(client: Client, name: str) -> Awaitable[Any]:
    return client.worktrees.RewindSession(
        worktree_pb2.RewindSessionRequest(session=name, checkpoint="1", files_only=True)
    )


def sync(client: Client, name: str) -> Awaitable[Any]:
    return client.worktrees.SyncSession(worktree_pb2.SyncSessionRequest(session=name))


def land(client: Client, name: str) -> Awaitable[Any]:
    return client.landing.LandSessions(
        landing_pb2.LandSessionsRequest(sessions=[name], target="trunk", commit_message="all of it")
    )


def archive(client: Client, name: str) -> Awaitable[Any]:
    return client.sessions.ArchiveSession(session_pb2.ArchiveSessionRequest(session=name))


def remove(client: Client, name: str) -> Awaitable[Any]:
    return client.sessions.DeleteSession(session_pb2.DeleteSessionRequest(session=name, force=True))


CALLS: dict[str, Call] = {
    "checkpoint": checkpoint,
    "fork": fork,
    "rewind": rewind,
    "rewind of files": rewind_files,
    "sync": sync,
    "land": land,
    "archive": archive,
    "remove": remove,
}
REFUSALS = {"WRONG_STATE", "SESSION_NOT_FOUND", "WORKTREE_CHANGED"}
"""Reasons of refusals: another operation has the session, it is archived, or it is removed, its
tree perhaps before its row."""


@pytest.fixture
def repository(repository: Path) -> Path:
    git(repository, "branch", "trunk")
    return repository


async def made(client: Client, repository: Path, name: str, *, staged: bool) -> session_pb2.Session:
    """Create a session with two checkpoints, a commit between them, and two newer files, one of
    them only ``staged`` or both committed."""
    session = await client.create(repository, name=name)
    tree = Path(session.worktree)
    await checkpoint(client, name)
    (tree / "dir0/file0.txt").write_text("changed\n")
    git(tree, "commit", "-qam", "work")
    await checkpoint(client, name)
    (tree / "dir1/file1.txt").write_text("changed\n")
    (tree / "new.txt").write_text("new\n")
    (tree / "staged.txt").write_text("staged\n")
    git(tree, "add", "staged.txt")
    if not staged:  # git refuses to merge into that
        git(tree, "add", "-A")
        git(tree, "commit", "-qm", "more work")
    return session


async def outcome(call: Awaitable[Any]) -> tuple[str, str]:
    """Return ("", "") if it is done; else reason and message of the refusal."""
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return reason_of(error), str(error.details())
    return "", ""


async def agree(client: Client, repository: Path, session: session_pb2.Session) -> bool:
    """Check that files, index, branch, checkpoints and rows of a session agree."""
    tree = Path(session.worktree)
    refs = git(repository, "for-each-ref", "--format=%(refname)", f"refs/ramet/checkpoints/{session.id}").split()
    reason, _ = await outcome(client.get(session.id))
    assert reason in {"", "SESSION_NOT_FOUND"}
    if reason:
        assert not tree.exists()
        assert session.branch not in git(repository, "branch", "--format=%(refname:short)").split()
        return True
    now = await client.get(session.id)
    listed = await client.worktrees.ListCheckpoints(worktree_pb2.ListCheckpointsRequest(session=session.id))
    assert sorted(each.ref for each in listed.checkpoints) == sorted(refs)
    if now.state == session_pb2.SESSION_STATE_ARCHIVED:
        assert not tree.exists()
        return True
    assert now.state == IDLE
    assert git(tree, "symbolic-ref", "--short", "HEAD") == now.branch
    assert not [name for name in ("MERGE_HEAD", "rebase-merge", "index.lock") if (git_dir(tree) / name).exists()]
    git(tree, "merge-base", "--is-ancestor", now.base_commit, "HEAD")
    for each in listed.checkpoints:  # each has the files of one moment, never a mixture of before and after a rewind
        files = git(tree, "ls-tree", "-r", "--name-only", each.commit).split()
        changed = git(tree, "show", f"{each.commit}:dir0/file0.txt") == "changed"
        assert ("new.txt" in files) <= changed, f"{each.number}: a mixture"
        assert ("new.txt" in files) == ("staged.txt" in files), f"{each.number}: a mixture"
    await checkpoint(client, session.id)  # no operation has the session any more
    return True


def git_dir(tree: Path) -> Path:
    return Path(git(tree, "rev-parse", "--absolute-git-dir"))


@pytest.mark.parametrize("first", CALLS)
async def test_two_calls_on_one_session_are_done_one_after_the_other_or_refused(
    client: Client, repository: Path, first: str
) -> None:
    names = [*CALLS][[*CALLS].index(first) :]
    sessions = [await made(client, repository, f"with-{name}", staged="sync" not in {first, name}) for name in names]
    (repository / "base.txt").write_text("the base has gone on\n")
    git(repository, "add", "base.txt")
    git(repository, "commit", "-qm", "base")

    for session, second in zip(sessions, names, strict=True):
        both = await asyncio.gather(*(outcome(CALLS[name](client, session.id)) for name in (first, second)))
        assert ("", "") in both, (second, both)
        assert all(reason in {"", *REFUSALS} for reason, _ in both), (second, both)
        await eventually(partial(agree, client, repository, session))
