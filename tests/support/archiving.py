"""Archive, remove and restore sessions in tests, and compare their worktrees before and after."""

from pathlib import Path
from typing import Any

import grpc
import pytest
from ramet.v1 import session_pb2, worktree_pb2

from tests.support.daemon import IDLE, Client, git, reason_of

ARCHIVED = session_pb2.SESSION_STATE_ARCHIVED


async def archive(client: Client, name: str, **fields: Any) -> session_pb2.ArchiveSessionResponse:
    return await client.sessions.ArchiveSession(session_pb2.ArchiveSessionRequest(session=name, **fields))


async def restore(client: Client, name: str) -> session_pb2.RestoreSessionResponse:
    return await client.sessions.RestoreSession(session_pb2.RestoreSessionRequest(session=name))


async def remove(client: Client, name: str, **fields: Any) -> session_pb2.DeleteSessionResponse:
    return await client.sessions.DeleteSession(session_pb2.DeleteSessionRequest(session=name, **fields))


async def restore_trash(client: Client, name: str) -> worktree_pb2.RestoreTrashResponse:
    return await client.worktrees.RestoreTrash(worktree_pb2.RestoreTrashRequest(entry=name))


async def refusal(call: Any) -> tuple[str, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return reason_of(caught.value), str(caught.value.details())


def work_on(tree: Path) -> str:
    """Make changes of every kind in a worktree; return its `state_of`."""
    (tree / "committed.txt").write_text("committed\n")
    git(tree, "add", "committed.txt")
    git(tree, "commit", "-q", "-m", "committed")
    (tree / "staged.txt").write_text("staged\n")
    git(tree, "add", "staged.txt")
    (tree / "committed.txt").write_text("changed\n")
    (tree / "sub dir").mkdir()
    (tree / "sub dir" / "untrackéd").write_bytes(b"\0bytes")
    (tree / "run.sh").write_text("#!/bin/sh\n")
    (tree / "run.sh").chmod(0o755)
    (tree / "link").symlink_to("nowhere")
    return state_of(tree)


def state_of(tree: Path) -> str:
    files = {
        str(path.relative_to(tree)): (
            str(path.readlink()) if path.is_symlink() else f"{path.stat().st_mode:o} {path.read_bytes()!r}"
        )
        for path in sorted(tree.rglob("*"))
        if (path.is_file() or path.is_symlink()) and path.name != ".git" and path.relative_to(tree).parts[0] != ".git"
    }
    status = git(tree, "status", "--porcelain=v2", "--branch", "--untracked-files=all")
    return f"{status}\n{files}"


async def turns(client: Client, name: str, count: int) -> session_pb2.Session:
    session = await client.get(name)
    assert session.turns >= count
    assert session.state == IDLE
    return session
