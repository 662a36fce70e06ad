"""What only a ref of ours keeps, or kept: told, with the way to have it again."""

import asyncio
import re
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

from ramet.v1 import session_pb2, worktree_pb2

from tests.support.daemon import Client, Sandbox, connected, daemon_here, git
from tests.support.doctor import codes, diagnose, follow, garbage
from tests.support.eventually import eventually

DAY_S = 86400.0


async def back_on_another_branch(client: Client, repository: Path, name: str) -> str:
    """Archive a session, have its branch go on meanwhile, and bring it back: its ref stays, with a warning. Returns the ref."""
    made = await client.create(repository, name=name)
    (Path(made.worktree) / "only.txt").write_text("uncommitted\n")
    await client.sessions.ArchiveSession(session_pb2.ArchiveSessionRequest(session=name))
    moved = git(repository, "commit-tree", "-p", made.branch, "-m", "moved on", f"{made.branch}^{{tree}}")
    git(repository, "update-ref", f"refs/heads/{made.branch}", moved)
    return f"refs/ramet/archive/{made.id}"


def dated_back(sandbox: Sandbox, repository: Path, ref: str) -> str:
    """What a ref keeps, as if it had been kept years ago."""
    raw = git(repository, "cat-file", "commit", ref)
    who = "A Person <person@example.org> 1000000000 +0000"
    text = re.sub(r"^(author|committer) .*$", rf"\1 {who}", raw, flags=re.MULTILINE)
    file = sandbox.root / "commit"
    file.write_text(text + "\n")
    return git(repository, "hash-object", "-t", "commit", "-w", str(file))


async def test_what_a_restore_could_not_bring_back_is_told_until_it_expires_and_goes_then(
    sandbox: Sandbox, repository: Path
) -> None:
    async with daemon_here(sandbox), connected(sandbox) as client:
        ref = await back_on_another_branch(client, repository, "back")
        # It was put away long ago: what counts is when it came back.
        old = dated_back(sandbox, repository, ref)
        git(repository, "update-ref", ref, old)
        assert not await diagnose(client)
        restored = await client.sessions.RestoreSession(session_pb2.RestoreSessionRequest(session="back"))
        assert restored.warnings
        # On another branch, but all of it.
        assert not await diagnose(client)
        assert ref not in await garbage(client)
        (Path((await client.get("back")).worktree) / "only.txt").unlink()

        found = (await diagnose(client))[ref]

        assert (found.code, found.severity, found.fixable) == ("ref-still-kept", "info", False)
        assert found.session_id == restored.session.id
        assert restored.warnings[0] in found.message
        assert f"rametctl diff back --against {ref}" in found.advice
        assert "it goes by itself in 30 days" in found.advice
        told = await asyncio.to_thread(sandbox.ctl, "diff", "back", "--against", ref)
        assert told.code == 0, told
        item = (await garbage(client, dry_run=False))[ref]
        assert (item.verdict, item.removed) == ("kept", False)
        assert "could not bring back" in item.reason
        await diagnose(client, fix=True)
        assert git(repository, "rev-parse", ref) == old
        recent, needed = [await back_on_another_branch(client, repository, name) for name in ("recent", "again")]
        for name in ("recent", "again"):
            await client.sessions.RestoreSession(session_pb2.RestoreSessionRequest(session=name))
        (Path((await client.get("recent")).worktree) / "only.txt").write_text("gone on with\n")
        await client.sessions.ArchiveSession(session_pb2.ArchiveSessionRequest(session="again"))
    with closing(sqlite3.connect(sandbox.root / "state" / "ramet.db", timeout=10)) as database, database:
        database.execute(
            "UPDATE restores SET time = time - ? WHERE session_id != ?",
            (31 * DAY_S, recent.rpartition("/")[2]),
        )

    async with daemon_here(sandbox), connected(sandbox) as client:

        async def gone() -> bool:
            return not git(repository, "for-each-ref", ref)

        await eventually(gone)
        assert codes(await diagnose(client)) == {recent: ("ref-still-kept", "info")}
        assert git(repository, "for-each-ref", recent)
        assert git(repository, "for-each-ref", needed)
        await client.sessions.RestoreSession(session_pb2.RestoreSessionRequest(session="again"))
        assert (Path((await client.get("again")).worktree) / "only.txt").read_text() == "uncommitted\n"


async def test_what_is_aside_of_repositories_inside_goes_with_the_ref(sandbox: Sandbox, repository: Path) -> None:
    async with daemon_here(sandbox), connected(sandbox) as client:
        tree = Path((await client.create(repository, name="back")).worktree)
        git(tree, "init", "-q", "own")
        ref = f"refs/ramet/archive/{tree.name}"
        await client.sessions.ArchiveSession(session_pb2.ArchiveSessionRequest(session="back"))
        git(repository, "branch", "-D", git(repository, "branch", "--list", "ramet/*").strip())
        assert (await client.sessions.RestoreSession(session_pb2.RestoreSessionRequest(session="back"))).warnings
        assert (tree.parent / ".kept" / tree.name).is_dir()
    with closing(sqlite3.connect(sandbox.root / "state" / "ramet.db", timeout=10)) as database, database:
        database.execute("UPDATE restores SET time = time - ?", (31 * DAY_S,))

    async with daemon_here(sandbox):

        async def gone() -> bool:
            return not git(repository, "for-each-ref", ref) and not (tree.parent / ".kept").exists()

        await eventually(gone)
    assert (tree / "own" / ".git").is_dir()


async def put_away(client: Client, repository: Path, name: str, *, checkpoint: bool = True) -> str:
    """Archive a session with one file in its second checkpoint and one that is newer. Returns its ref."""
    made = await client.create(repository, name=name)
    await eventually(lambda: client.checkpoints(name))
    tree = Path(made.worktree)
    if checkpoint:
        (tree / "kept.txt").write_text(f"{name}\n")
        await client.worktrees.CreateCheckpoint(worktree_pb2.CreateCheckpointRequest(session=name))
    (tree / "newer.txt").write_text(f"{name}\n")
    await client.sessions.ArchiveSession(session_pb2.ArchiveSessionRequest(session=name))
    return f"refs/ramet/archive/{made.id}"


async def test_an_archive_whose_ref_is_gone_is_made_again_by_what_is_told(
    client: Client, sandbox: Sandbox, repository: Path
) -> None:
    refs = {name: await put_away(client, repository, name) for name in ("known", "by its log", "found")}
    git(repository, "update-ref", "--create-reflog", "-m", "x", refs["by its log"], f"{refs['by its log']}^0")
    commits = {name: git(repository, "rev-parse", ref) for name, ref in refs.items()}
    log = repository / ".git" / "logs" / refs["by its log"]
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text(f"{'0' * 40} {commits['by its log']} A Person <a@b> 1700000000 +0000\tkept\n")
    for ref in refs.values():
        (repository / ".git" / ref).unlink()
    with closing(sqlite3.connect(sandbox.root / "state" / "ramet.db", timeout=10)) as database, database:
        for name in ("by its log", "found"):  # as a database has them that was rebuilt
            session_id = refs[name].rpartition("/")[2]
            database.execute("UPDATE sessions SET archive_commit = '' WHERE id = ?", (session_id,))

    found = await diagnose(client)

    assert codes(found) == dict.fromkeys(refs, ("archive-ref-missing", "error"))
    for name in ("known", "by its log"):
        assert f"its commit, {commits[name][:12]}, is still there" in found[name].message
        await follow(sandbox, repository, found[name].advice, "keep it again")
    (find,) = [
        line.partition(": ")[2] for line in found["found"].advice.splitlines() if line.startswith("find its commit")
    ]
    shown = await asyncio.to_thread(subprocess.check_output, ["sh", "-c", find], text=True)
    assert [line.split()[0] for line in shown.splitlines()] == [commits["found"]]
    await follow(sandbox, repository, found["found"].advice.replace("COMMIT", commits["found"]), "keep that again")
    assert not await diagnose(client)
    for name in refs:
        await client.sessions.RestoreSession(session_pb2.RestoreSessionRequest(session=name))
        assert (Path((await client.get(name)).worktree) / "newer.txt").read_text() == f"{name}\n"


async def test_what_is_lost_with_a_ref_and_its_commit_is_told_and_what_is_not_comes_back(
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
        assert "what was not committed is lost as far as it was changed after checkpoint 2" in found[name].message
        await follow(sandbox, repository, found[name].advice, "have the files of checkpoint 2 instead")
    assert "what was not committed is lost; branch ramet/bare is there" in found["bare"].message
    await follow(sandbox, repository, found["bare"].advice, "give it up")
    assert not await diagnose(client)
    await client.sessions.RestoreSession(session_pb2.RestoreSessionRequest(session="archived"))
    await client.worktrees.RestoreTrash(worktree_pb2.RestoreTrashRequest(entry="binned"))
    for name in ("archived", "binned"):
        back = Path((await client.get(name)).worktree)
        assert ((back / "kept.txt").read_text(), (back / "newer.txt").exists()) == (f"{name}\n", False)
