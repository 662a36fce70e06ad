"""Names that are not UTF-8, lost objects, moved repositories: each is reported, and nothing of
others changes."""

import os
from pathlib import Path

import grpc
import pytest
from ramet.v1 import worktree_pb2

from tests.support.archiving import archive, refusal, remove, restore_trash
from tests.support.daemon import Client, Sandbox, git, reason_of
from tests.support.doctor import diagnose, follow

pytestmark = pytest.mark.full

ODD = os.fsdecode(b"b\xff.txt")


@pytest.mark.parametrize("archived", [False, True], ids=["there", "archived"])
async def test_files_with_names_that_are_not_utf8_are_restored(
    client: Client, repository: Path, archived: bool
) -> None:
    tree = Path((await client.create(repository, name="one")).worktree)
    (tree / ODD).write_text("odd\n")
    os.mkfifo(tree / os.fsdecode(b"p\xff"))
    if archived:
        await archive(client, "one")

    reason, words = await refusal(remove(client, "one"))
    assert (reason, "b\N{REPLACEMENT CHARACTER}.txt" in words) == ("WORK_AT_RISK", True), words
    (item,) = (await client.worktrees.CollectGarbage(worktree_pb2.CollectGarbageRequest(dry_run=True))).items
    assert (item.name, item.verdict) == ("one", "kept")

    await remove(client, "one", force=True)
    await restore_trash(client, "one")
    assert (tree / ODD).read_text() == "odd\n"
    assert (tree / os.fsdecode(b"p\xff")).is_fifo()


async def test_rm_refuses_a_session_with_a_lost_commit_and_by_force_keeps_its_files(
    client: Client, repository: Path
) -> None:
    tree = Path((await client.create(repository, name="one")).worktree)
    (tree / "new.txt").write_text("new\n")
    git(tree, "add", "new.txt")
    git(tree, "commit", "-q", "-m", "new")
    (tree / "dir0" / "file0.txt").write_text("changed\n")
    head = git(tree, "rev-parse", "HEAD")
    lost = repository / ".git" / "objects" / head[:2] / head[2:]
    lost.unlink()

    found = (await diagnose(client))["one"]
    assert (found.code, f"is at {head[:12]}, which git no longer has" in found.message) == ("branch-missing", True)

    reason, words = await refusal(remove(client, "one"))
    assert reason in {"GIT_FAILED", "WORK_AT_RISK"}, (reason, words)
    assert head[:8] in words or "bad object HEAD" in words
    assert (tree / "new.txt").read_text() == "new\n"

    answer = await remove(client, "one", force=True)
    assert f"git cannot read it; it stays as it is: git no longer has the object {head}" in answer.warnings
    assert any(f"stays: git no longer has its commit {head[:12]}" in words for words in answer.warnings)

    back = await restore_trash(client, "one")

    assert back.session.branch == "ramet/one-restored"
    assert f"branch ramet/one is at {head[:12]}, which git no longer has: the work is on {back.session.branch}" in list(
        back.warnings
    )
    assert (tree / "new.txt").read_text() == "new\n"
    assert (tree / "dir0" / "file0.txt").read_text() == "changed\n"
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await client.create(repository, name="two", branch="ramet/one")
    assert reason_of(refused.value) == "BRANCH_TAKEN"


async def test_the_advice_for_a_branch_with_a_lost_commit_resets_it_and_keeps_files(
    client: Client, sandbox: Sandbox, repository: Path
) -> None:
    made = await client.create(repository, name="one")
    tree = Path(made.worktree)
    (tree / "new.txt").write_text("new\n")
    git(tree, "add", "new.txt")
    git(tree, "commit", "-q", "-m", "new")
    head = git(tree, "rev-parse", "HEAD")
    (repository / ".git" / "objects" / head[:2] / head[2:]).unlink()

    await follow(
        sandbox, repository, (await diagnose(client))["one"].advice, "or move the branch to the last known commit"
    )

    assert not await diagnose(client)
    assert git(tree, "status", "--porcelain") == "A  new.txt"
    await archive(client, "one")


async def test_a_repository_that_was_moved_away_is_not_taken_for_the_one_around_it(
    client: Client, sandbox: Sandbox
) -> None:
    around = sandbox.repository("around")
    inner = around / "inner"
    git(around, "init", "-q", str(inner))
    git(inner, "commit", "-q", "--allow-empty", "-m", "first")
    made = await client.create(inner, name="one")
    git(around, "branch", made.branch)
    (inner / ".git").rename(sandbox.root / "moved-away")

    await refusal(client.worktrees.GetPool(worktree_pb2.GetPoolRequest(repo=made.repo)))
    await remove(client, "one", force=True)

    assert git(around, "rev-parse", made.branch)
    assert not git(around, "for-each-ref", "refs/ramet")
