"""gc and doctor: removable and kept things, and every finding by its code."""

import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import grpc
import pytest
from ramet.v1 import session_pb2, worktree_pb2
from rametd.git.registrations import REASON

from tests.support.agents import script
from tests.support.daemon import IDLE, Client, Sandbox, connected, daemon_here, git, reason_of
from tests.support.doctor import findings, record_former_ids
from tests.support.eventually import eventually

pytestmark = pytest.mark.full


async def collect(client: Client, *, dry_run: bool = True) -> dict[str, worktree_pb2.Garbage]:
    answer = await client.worktrees.CollectGarbage(worktree_pb2.CollectGarbageRequest(dry_run=dry_run))
    return {item.name: item for item in answer.items}


async def diagnose(client: Client, *, fix: bool = False) -> list[worktree_pb2.Finding]:
    return await findings(client, fix=fix)


async def codes(client: Client) -> list[tuple[str, str]]:
    return [(found.code, found.severity) for found in await diagnose(client)]


def commit(tree: Path, name: str) -> None:
    (tree / name).write_text(f"{name}\n")
    git(tree, "add", "-A")
    git(tree, "commit", "-q", "-m", name)


async def at_rest(client: Client, name: str) -> None:
    """Wait until the session is idle after a turn; its agent stays alive."""
    await client.reach(name, IDLE)

    async def turned() -> bool:
        return (await client.get(name)).turns > 0

    await eventually(turned)


async def test_what_has_landed_goes_to_the_trash_and_what_holds_work_stays_with_the_reason(
    client: Client, repository: Path
) -> None:
    trees = {}
    for name in ("merged", "dirty", "ahead", "fresh"):
        prompt = "" if name == "fresh" else script({"text": name})
        trees[name] = Path((await client.create(repository, prompt, name=name)).worktree)
    for name in ("merged", "dirty", "ahead"):
        await at_rest(client, name)
        commit(trees[name], name)
    for name in ("merged", "dirty"):
        git(repository, "merge", "-q", "--squash", f"ramet/{name}")
        git(repository, "commit", "-q", "-m", f"{name} squashed")
    (trees["dirty"] / "left.txt").write_text("uncommitted\n")

    listed = await collect(client)

    assert {name: item.verdict for name, item in listed.items()} == {
        "merged": "merged", "dirty": "kept", "ahead": "kept", "fresh": "kept",
    }  # fmt: skip
    assert listed["merged"].reason == "its content is on main"
    assert listed["merged"].bytes > 0
    assert "1 untracked (left.txt)" in listed["dirty"].reason
    assert "1 commit on no other branch" in listed["ahead"].reason
    assert not any(item.removed for item in listed.values())
    assert all(tree.exists() for tree in trees.values())

    gone = await collect(client, dry_run=False)

    assert [name for name, item in gone.items() if item.removed] == ["merged"]
    assert [name for name, tree in trees.items() if not tree.exists()] == ["merged"]
    restored = await client.worktrees.RestoreTrash(worktree_pb2.RestoreTrashRequest(entry="merged"))
    assert (trees["merged"] / "merged").read_text() == "merged\n"
    assert not restored.warnings


async def test_gc_removes_untouched_and_archived_sessions_if_configured(
    sandbox: Sandbox,
) -> None:
    sandbox.configure('[retention]\nstale = "1s"\narchive = "1s"\n')
    repository = sandbox.repository()
    async with daemon_here(sandbox), connected(sandbox) as client:
        await client.create(repository, name="stale")
        await client.create(repository, name="filed")
        held = Path((await client.create(repository, name="held")).worktree)
        (held / "only.txt").write_text("here\n")
        for name in ("filed", "held"):
            await client.sessions.ArchiveSession(session_pb2.ArchiveSessionRequest(session=name))

        async def old_enough() -> dict[str, str]:
            verdicts = {name: item.verdict for name, item in (await collect(client)).items()}
            assert verdicts == {"stale": "stale", "filed": "archived", "held": "kept"}
            return verdicts

        await eventually(old_enough)
        gone = await collect(client, dry_run=False)
        assert {name for name, item in gone.items() if item.removed} == {"stale", "filed"}


async def test_what_only_a_checkpoint_holds_of_a_tree_that_was_deleted_by_hand_stays(
    client: Client, repository: Path
) -> None:
    trees = {name: Path((await client.create(repository, name=name)).worktree) for name in ("lost", "saved")}
    for name, tree in trees.items():
        (tree / "only.txt").write_text(f"of {name}\n")
        await client.worktrees.CreateCheckpoint(worktree_pb2.CreateCheckpointRequest(session=name))
    commit(trees["saved"], "more.txt")
    git(repository, "merge", "-q", "ramet/saved")
    for tree in trees.values():
        shutil.rmtree(tree)

    listed = (await collect(client))["lost"]
    assert listed.verdict == "kept"
    assert "only.txt" in listed.reason
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await client.sessions.DeleteSession(session_pb2.DeleteSessionRequest(session="lost"))
    assert reason_of(refused.value) == "WORK_AT_RISK"
    assert "only.txt" in (refused.value.details() or "")
    await client.sessions.DeleteSession(session_pb2.DeleteSessionRequest(session="saved"))


async def test_a_session_whose_work_has_landed_without_a_turn_stays_with_the_reason(
    client: Client, repository: Path
) -> None:
    commit(Path((await client.create(repository, name="by-hand")).worktree), "new.txt")
    git(repository, "merge", "-q", "ramet/by-hand")

    listed = (await collect(client))["by-hand"]

    assert listed.verdict == "kept"
    assert "before its first turn, gc removes it only after retention.stale" in listed.reason


async def test_what_was_left_of_sessions_that_are_gone_goes_unless_it_holds_work(
    client: Client, sandbox: Sandbox, repository: Path
) -> None:
    made = await client.create(repository, name="lives")
    folder = Path(made.worktree).parent
    clean, worked = folder / "aaaaaaa2", folder / "aaaaaaa3"
    foreign = folder / "aaaaaaa7"
    for tree in (clean, worked):
        git(repository, "worktree", "add", "-q", "--detach", "--lock", "--reason", REASON, str(tree))
    git(repository, "worktree", "add", "-q", "--detach", str(foreign))
    (worked / "only.txt").write_text("here\n")
    (folder / "not-an-id").mkdir()
    for branch, start in (("ramet/old", "main"), ("ramet/own", "main")):
        message = f"ramet: made for {folder / 'aaaaaaa4'}"
        git(repository, "update-ref", "--create-reflog", "-m", message, f"refs/heads/{branch}", start)
    tip = git(repository, "commit-tree", "-p", "main", "-m", "own", "main^{tree}")
    git(repository, "update-ref", "refs/heads/ramet/own", tip)
    git(repository, "branch", "mine")
    record_former_ids(sandbox, "aaaaaaa4", "aaaaaaa5", "aaaaaaa6")
    git(repository, "update-ref", "refs/ramet/checkpoints/aaaaaaa5/1", "main")
    lone = git(repository, "commit-tree", "-p", "main", "-m", "lone", "main^{tree}")
    git(repository, "update-ref", "refs/ramet/archive/aaaaaaa6", lone)

    gone = {name: item for name, item in (await collect(client, dry_run=False)).items() if item.kind != "session"}

    removed = {str(clean), "ramet/old", "refs/ramet/checkpoints/aaaaaaa5/1"}
    assert {name for name, item in gone.items() if item.removed} == removed
    assert {item.verdict for name, item in gone.items() if name in removed} == {"orphaned"}
    assert {name for name, item in gone.items() if item.verdict == "kept"} == {
        str(worked), str(foreign), "ramet/own", "refs/ramet/archive/aaaaaaa6",
    }  # fmt: skip
    assert not clean.exists()
    assert (worked / "only.txt").exists()
    assert foreign.exists()
    assert (folder / "not-an-id").exists()
    assert "mine" in git(repository, "branch")
    assert Path(made.worktree).exists()


async def test_all_is_well_where_nothing_differs(client: Client, repository: Path) -> None:
    await client.create(repository, script({"text": "x"}), name="one")
    await client.reach("one", IDLE)
    await client.create(repository, name="two")
    await client.sessions.ArchiveSession(session_pb2.ArchiveSessionRequest(session="two"))
    await client.create(repository, name="three")
    await client.sessions.DeleteSession(session_pb2.DeleteSessionRequest(session="three"))

    answer = await client.worktrees.Diagnose(worktree_pb2.DiagnoseRequest())

    assert not answer.findings
    assert answer.checked["sessions"] == 2
    assert answer.checked["database"] == 1


async def test_each_difference_has_its_code_and_safe_ones_are_fixed(
    client: Client, sandbox: Sandbox, repository: Path, tmp_path: Path
) -> None:
    made = {}
    for name in ("gone", "moved", "broken", "branchless", "elsewhere", "filed", "binned", "tidy"):
        made[name] = await client.create(repository, name=name)
    trees = {name: Path(session.worktree) for name, session in made.items()}
    git(repository, "worktree", "unlock", str(trees["gone"]))
    shutil.rmtree(trees["gone"])
    git(repository, "worktree", "unlock", str(trees["moved"]))
    git(repository, "worktree", "move", str(trees["moved"]), str(tmp_path / "there"))
    (trees["broken"] / ".git").unlink()
    git(trees["branchless"], "checkout", "-q", "--detach")
    git(repository, "branch", "-D", made["branchless"].branch)
    git(trees["elsewhere"], "checkout", "-q", "-b", "other")
    await client.sessions.ArchiveSession(session_pb2.ArchiveSessionRequest(session="filed"))
    git(repository, "update-ref", "-d", f"refs/ramet/archive/{made['filed'].id}")
    await client.sessions.DeleteSession(session_pb2.DeleteSessionRequest(session="binned"))
    git(repository, "update-ref", "-d", f"refs/ramet/trash/{made['binned'].id}")
    (trees["tidy"].parent / "by-name" / "tidy").unlink()
    (sandbox.root / "state" / "index" / f"{made['tidy'].id}.json").unlink()
    (sandbox.root / "state" / "index" / "aaaaaaa2.json").write_text("{}")
    record_former_ids(sandbox, "aaaaaaa3")
    git(repository, "update-ref", "refs/ramet/trash/aaaaaaa3", "main")
    stale = trees["tidy"].parent / "aaaaaaa4"
    git(
        repository,
        "worktree",
        "add",
        "-q",
        "--detach",
        "--lock",
        "--reason",
        "in use by ramet (rametctl rm removes it)",
        str(stale),
    )
    shutil.rmtree(stale)
    lock = repository / ".git" / "index.lock"
    lock.touch()
    os.utime(lock, (1.0, 1.0))

    found = {each.code: each for each in await diagnose(client)}

    assert {code: each.severity for code, each in found.items()} == {
        "worktree-missing": "error",
        "worktree-moved": "error",
        "worktree-broken": "error",
        "branch-missing": "error",
        "archive-ref-missing": "error",
        "trash-ref-missing": "error",
        "branch-not-checked-out": "warning",
        "index-missing": "warning",
        "registration-stale": "warning",
        "lock-stale": "warning",
        "link-missing": "info",
        "index-unknown": "info",
        "ref-unknown": "info",
    }
    assert all(each.message and each.advice for each in found.values())
    assert [each.severity for each in await diagnose(client)] == sorted(
        (each.severity for each in await diagnose(client)), key=["error", "warning", "info"].index
    )

    fixed = {each.code for each in await diagnose(client, fix=True) if each.fixed}

    assert fixed == {"index-missing", "registration-stale", "link-missing", "index-unknown", "ref-unknown"}
    remain = {each.code for each in await diagnose(client)}
    assert remain == set(found) - fixed
    assert lock.exists()
    assert any(trees["broken"].iterdir())


async def test_an_agent_that_is_gone_without_a_word_to_anybody_is_marked_lost(
    client: Client, repository: Path, sandbox: Sandbox
) -> None:
    await client.create(repository, script({"text": "x"}), name="lost")
    await client.reach("lost", IDLE)
    stopped = await client.sessions.StopSession(session_pb2.StopSessionRequest(session="lost"))
    assert not stopped.session.agent_alive
    with closing(sqlite3.connect(sandbox.root / "state" / "ramet.db", timeout=10)) as database, database:
        database.execute("UPDATE agents SET state = 'live', exit_status = ''")

    assert await codes(client) == [("agent-gone", "error")]
    assert [found.fixed for found in await diagnose(client, fix=True)] == [True]
    assert not await codes(client)
    assert not (await client.get("lost")).agent_alive
