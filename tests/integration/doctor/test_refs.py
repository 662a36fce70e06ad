"""Work that only a ref of Ramet has or had: doctor reports it with the command that restores it."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from ramet.v1 import session_pb2, worktree_pb2

from tests.support.daemon import Client, Sandbox, git
from tests.support.doctor import codes, diagnose, follow
from tests.support.eventually import eventually

pytestmark = pytest.mark.full

DAY_S = 86400.0


async def put_away(client: Client, repository: Path, name: str, *, checkpoint: bool = True) -> str:
    """Archive a session with one file in its second checkpoint and a newer one. Return its ref."""
    made = await client.create(repository, name=name)
    await eventually(lambda: client.checkpoints(name))
    tree = Path(made.worktree)
    if checkpoint:
        (tree / "kept.txt").write_text(f"{name}\n")
        await client.worktrees.CreateCheckpoint(worktree_pb2.CreateCheckpointRequest(session=name))
    (tree / "newer.txt").write_text(f"{name}\n")
    await client.sessions.ArchiveSession(session_pb2.ArchiveSessionRequest(session=name))
    return f"refs/ramet/archive/{made.id}"


async def test_the_advice_restores_the_lost_ref_of_an_archive(
    client: Client, sandbox: Sandbox, repository: Path
) -> None:
    refs = {name: await put_away(client, repository, name) for name in ("known", "by its log", "by its shelf")}
    commits = {name: git(repository, "rev-parse", ref) for name, ref in refs.items()}
    log = repository / ".git" / "logs" / refs["by its log"]
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text(f"{'0' * 40} {commits['by its log']} A Person <a@b> 1700000000 +0000\tkept\n")
    for ref in refs.values():
        (repository / ".git" / ref).unlink()
    with closing(sqlite3.connect(sandbox.root / "state" / "ramet.db", timeout=10)) as database, database:
        for name in ("by its log", "by its shelf"):  # as in a rebuilt database
            session_id = refs[name].rpartition("/")[2]
            database.execute("UPDATE sessions SET archive_commit = '' WHERE id = ?", (session_id,))

    found = await diagnose(client)

    assert codes(found) == dict.fromkeys(refs, ("archive-ref-missing", "error"))
    for name in refs:
        assert f"its snapshot, {commits[name][:12]}, is still there" in found[name].message
        await follow(sandbox, repository, found[name].advice, "create the ref again")
    assert not await diagnose(client)
    for name in refs:
        await client.sessions.RestoreSession(session_pb2.RestoreSessionRequest(session=name))
        assert (Path((await client.get(name)).worktree) / "newer.txt").read_text() == f"{name}\n"


async def test_a_lost_commit_is_reported_and_the_rest_restored(
    client: Client, sandbox: Sandbox, repository: Path
) -> None:
    refs = [
        await put_away(client, repository, "archived"),
        await put_away(client, repository, "bare", checkpoint=False),
    ]
    bare = refs[1].rpartition("/")[2]
    git(repository, "update-ref", "-d", f"refs/ramet/checkpoints/{bare}/1")
    with closing(sqlite3.connect(sandbox.root / "state" / "ramet.db", timeout=10)) as database, database:
        database.execute("DELETE FROM checkpoints WHERE session_id = ?", (bare,))  # as an earlier release left it
    binned = await client.create(repository, name="binned")
    await eventually(lambda: client.checkpoints("binned"))
    tree = Path(binned.worktree)
    (tree / "kept.txt").write_text("binned\n")
    await client.worktrees.CreateCheckpoint(worktree_pb2.CreateCheckpointRequest(session="binned"))
    (tree / "newer.txt").write_text("binned\n")
    await client.sessions.DeleteSession(session_pb2.DeleteSessionRequest(session="binned", force=True))
    for ref in (*refs, f"refs/ramet/trash/{binned.id}"):
        git(repository, "update-ref", "-d", ref)
    git(repository, "prune", "--expire=now")

    found = await diagnose(client)

    assert {subject: each.code for subject, each in found.items()} == {
        "archived": "archive-ref-missing",
        "bare": "archive-ref-missing",
        "binned": "trash-ref-missing",
    }
    for name in ("archived", "binned"):
        assert "its worktree is still at " in found[name].message
        await follow(sandbox, repository, found[name].advice, "use checkpoint 2 instead")
    assert "branch ramet/bare exists" in found["bare"].message
    await follow(sandbox, repository, found["bare"].advice, "remove the session")
    assert not await diagnose(client)
    await client.sessions.RestoreSession(session_pb2.RestoreSessionRequest(session="archived"))
    await client.worktrees.RestoreTrash(worktree_pb2.RestoreTrashRequest(entry="binned"))
    for name in ("archived", "binned"):
        back = Path((await client.get(name)).worktree)
        assert ((back / "kept.txt").read_text(), (back / "newer.txt").exists()) == (f"{name}\n", True)
