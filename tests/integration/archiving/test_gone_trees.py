"""Worktrees that a person deleted or moved: work that only git's entry of them has is at risk,
recorded, and restored."""

import asyncio
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from ramet.v1 import worktree_pb2

from tests.support.archiving import archive, refusal, remove, restore, restore_trash
from tests.support.daemon import Client, Sandbox, git
from tests.support.doctor import diagnose, follow, garbage
from tests.support.eventually import eventually

pytestmark = pytest.mark.full


def collect_objects(repository: Path) -> None:
    git(repository, "-c", "gc.reflogExpire=now", "-c", "gc.worktreePruneExpire=never", "gc", "-q", "--prune=now")


def detached_commit(tree: Path) -> str:
    git(tree, "checkout", "-q", "--detach")
    (tree / "detached.txt").write_text("only here\n")
    git(tree, "add", "-A")
    git(tree, "commit", "-q", "-m", "on no branch")
    return git(tree, "rev-parse", "HEAD")


@pytest.mark.parametrize("way", ["archive", "rm"])
async def test_a_commit_only_the_head_of_a_deleted_worktree_has_is_pinned_and_restored(
    client: Client, repository: Path, way: str
) -> None:
    tree = Path((await client.create(repository, name="detached")).worktree)
    commit = detached_commit(tree)
    shutil.rmtree(tree)

    reason, words = await refusal(remove(client, "detached"))
    assert reason == "WORK_AT_RISK"
    assert f"1 commit on no other branch ({commit[:8]} on no branch)" in words
    assert (await garbage(client))["detached"].verdict == "kept"

    if way == "archive":
        gone = await archive(client, "detached")
        collect_objects(repository)
        reason, words = await refusal(remove(client, "detached"))
        assert (reason, commit[:8] in words) == ("WORK_AT_RISK", True), words
        back = list((await restore(client, "detached")).warnings)
    else:
        gone = await remove(client, "detached", force=True)  # type: ignore[assignment]
        collect_objects(repository)
        back = list((await restore_trash(client, "detached")).warnings)

    assert any("if it was moved by hand" in line for line in gone.warnings)
    assert back == []
    assert git(tree, "rev-parse", "HEAD") == commit
    assert git(tree, "status", "--porcelain", "--branch") == "## HEAD (no branch)"
    assert (tree / "detached.txt").read_text() == "only here\n"


async def test_the_newest_checkpoint_is_restored_on_its_own_detached_head(client: Client, repository: Path) -> None:
    tree = Path((await client.create(repository, name="both")).worktree)
    commit = detached_commit(tree)
    (tree / "uncommitted.txt").write_text("uncommitted\n")
    await client.worktrees.CreateCheckpoint(worktree_pb2.CreateCheckpointRequest(session="both"))
    shutil.rmtree(tree)

    _, words = await refusal(remove(client, "both"))
    assert "1 uncommitted (uncommitted.txt)" in words
    await remove(client, "both", force=True)
    assert list((await restore_trash(client, "both")).warnings) == []

    assert git(tree, "rev-parse", "HEAD") == commit
    assert git(tree, "status", "--porcelain") == "?? uncommitted.txt"


@pytest.mark.parametrize("way", ["advised", "rm"])
async def test_a_tree_lost_after_a_rewind_is_restored_to_the_rewound_state(
    client: Client, sandbox: Sandbox, repository: Path, way: str
) -> None:
    tree = Path((await client.create(repository, name="rewound")).worktree)
    await eventually(lambda: client.checkpoints("rewound"))
    (tree / "work.txt").write_text("stood at\n")
    stood = (
        await client.worktrees.CreateCheckpoint(worktree_pb2.CreateCheckpointRequest(session="rewound"))
    ).checkpoint
    (tree / "work.txt").write_text("left behind\n")
    (tree / "left.txt").write_text("left behind\n")
    await client.worktrees.RewindSession(
        worktree_pb2.RewindSessionRequest(session="rewound", checkpoint=str(stood.number))
    )
    assert [(each.number, each.current) for each in await client.checkpoints("rewound")] == [
        (3, False),
        (2, True),
        (1, False),
    ]
    shutil.rmtree(tree)

    _, words = await refusal(remove(client, "rewound"))
    assert "1 uncommitted (work.txt)" in words
    shown = (await asyncio.to_thread(sandbox.ctl, "diff", "rewound")).stderr
    assert "the files of checkpoint 2, its last: `rametctl archive rewound && rametctl restore rewound`" in shown
    assert "`rametctl fork rewound --at 2`" in shown
    if way == "advised":
        advice = (await diagnose(client))["rewound"].advice
        await follow(sandbox, repository, advice, "create it again with the files of checkpoint 2, its last")
    else:
        await remove(client, "rewound", force=True)
        assert list((await restore_trash(client, "rewound")).warnings) == []

    assert (tree / "work.txt").read_text() == "stood at\n"
    assert not (tree / "left.txt").exists()
    assert [each.number for each in await client.checkpoints("rewound") if each.current] == [2]


def merge_that_conflicts(repository: Path, tree: Path) -> str:
    """Start a merge of a commit on no branch, with one file resolved and staged and another in
    conflict. Return that commit."""
    for name in ("resolved.txt", "open.txt"):
        (tree / name).write_text("ours\n")
    git(tree, "add", "-A")
    git(tree, "commit", "-q", "-m", "ours")
    other = repository.parent / "other"
    git(repository, "worktree", "add", "-q", "--detach", str(other), "main")
    for name in ("resolved.txt", "open.txt"):
        (other / name).write_text("theirs\n")
    git(other, "add", "-A")
    git(other, "commit", "-q", "-m", "theirs")
    theirs = git(other, "rev-parse", "HEAD")
    git(repository, "worktree", "remove", "--force", str(other))
    with pytest.raises(subprocess.CalledProcessError):
        git(tree, "merge", "-q", theirs)
    (tree / "resolved.txt").write_text("both, by hand\n")
    git(tree, "add", "resolved.txt")
    return theirs


async def test_the_index_and_merge_of_a_moved_worktree_are_at_risk_and_restored(
    client: Client, sandbox: Sandbox, repository: Path
) -> None:
    tree = Path((await client.create(repository, name="moved")).worktree)
    theirs = merge_that_conflicts(repository, tree)
    place = tree.with_name("moved away")
    tree.rename(place)

    reason, words = await refusal(remove(client, "moved"))
    assert reason == "WORK_AT_RISK"
    assert "2 uncommitted (open.txt, resolved.txt)" in words
    assert "an unfinished merge" in words
    assert "1 commit on no other branch" in words or "2 commits on no other branch" in words
    advice = (await diagnose(client))["moved"].advice.replace("NEW-PATH", shlex.quote(str(place)))

    await follow(sandbox, repository, advice, "if you moved it")
    assert git(place, "diff", "--name-only", "--diff-filter=U") == "open.txt"
    await follow(sandbox, repository, (await diagnose(client))["moved"].advice, "move it back")
    tree.rename(place)

    removed = await remove(client, "moved", force=True)
    collect_objects(repository)
    assert any("was gone already" in line for line in removed.warnings)
    assert (place / "resolved.txt").read_text() == "both, by hand\n"
    assert list((await restore_trash(client, "moved")).warnings) == []
    assert git(tree, "rev-parse", "MERGE_HEAD") == theirs
    assert {line.split("\t")[1] for line in git(tree, "ls-files", "--unmerged").splitlines()} == {"open.txt"}
    assert git(tree, "show", ":resolved.txt") == "both, by hand"
    assert git(tree, "log", "-1", "--format=%s", theirs) == "theirs"


async def test_a_moved_worktree_without_work_is_removed_and_works_once_moved_back(
    client: Client, repository: Path
) -> None:
    tree = Path((await client.create(repository, name="moved")).worktree)
    (tree / "uncommitted.txt").write_text("here\n")
    place = tree.with_name("moved away")
    tree.rename(place)

    (warning,) = (await remove(client, "moved")).warnings
    assert "bring the session back and move its files, which stay where they are, into its place" in warning
    await restore_trash(client, "moved")
    shutil.rmtree(tree)
    place.rename(tree)

    assert git(tree, "status", "--porcelain", "--branch").splitlines() == ["## ramet/moved", "?? uncommitted.txt"]
    assert not await diagnose(client)


async def test_an_unreadable_index_is_a_warning_and_stops_no_removal(client: Client, repository: Path) -> None:
    tree = Path((await client.create(repository, name="damaged")).worktree)
    commit = detached_commit(tree)
    Path(git(tree, "rev-parse", "--absolute-git-dir"), "index").write_bytes(b"no index")
    shutil.rmtree(tree)

    _, words = await refusal(remove(client, "damaged"))
    assert "files that git cannot store (what was staged: " in words
    assert any("what was staged: " in line for line in (await remove(client, "damaged", force=True)).warnings)
    await restore_trash(client, "damaged")

    assert git(tree, "rev-parse", "HEAD") == commit


async def test_a_deleted_inner_worktrees_commit_outlives_the_outer_worktree(client: Client, repository: Path) -> None:
    tree = Path((await client.create(repository, name="outer")).worktree)
    for name in ("worked", "clean"):
        git(tree, "worktree", "add", "-q", "--detach", name)
    commit = detached_commit(tree / "worked")
    for name in ("worked", "clean"):
        shutil.rmtree(tree / name)

    _, words = await refusal(remove(client, "outer"))
    assert "the worktree worked inside it (with a detached HEAD), whose directory is gone" in words
    assert "clean" not in words
    await remove(client, "outer", force=True)
    collect_objects(repository)
    assert list((await restore_trash(client, "outer")).warnings) == []

    listed = git(repository, "worktree", "list", "--porcelain")
    assert f"worktree {tree / 'worked'}\nHEAD {commit}\ndetached" in listed
    git(repository, "cat-file", "-e", f"{commit}^{{tree}}")


async def test_a_deleted_branch_checked_out_in_place_of_the_sessions_is_restored(
    client: Client, repository: Path
) -> None:
    tree = Path((await client.create(repository, name="other")).worktree)
    git(tree, "switch", "-q", "-c", "side")
    (tree / "side.txt").write_text("on the side\n")
    git(tree, "add", "-A")
    git(tree, "commit", "-q", "-m", "on the side")
    commit = git(tree, "rev-parse", "HEAD")
    git(repository, "update-ref", "-d", "refs/heads/side")

    reason, words = await refusal(remove(client, "other"))
    assert (reason, commit[:8] in words) == ("WORK_AT_RISK", True), words
    await remove(client, "other", force=True)
    collect_objects(repository)
    (warning,) = (await restore_trash(client, "other")).warnings

    assert "side, which it had checked out" in warning
    assert git(tree, "rev-parse", "HEAD") == commit
    assert (tree / "side.txt").read_text() == "on the side\n"


@pytest.mark.parametrize("there", [True, False], ids=["there", "deleted"])
async def test_pending_commits_of_a_detached_rebase_are_recorded(client: Client, repository: Path, there: bool) -> None:
    tree = Path((await client.create(repository, name="rebasing")).worktree)
    git(tree, "checkout", "-q", "--detach")
    for text in ("mine\n", "more of mine\n"):
        (tree / "both.txt").write_text(text)
        git(tree, "add", "-A")
        git(tree, "commit", "-q", "-m", text.strip())
    tip = git(tree, "rev-parse", "HEAD")
    (repository / "both.txt").write_text("theirs\n")
    git(repository, "add", "-A")
    git(repository, "commit", "-q", "-m", "theirs")
    with pytest.raises(subprocess.CalledProcessError):
        git(tree, "rebase", "main")
    if not there:
        shutil.rmtree(tree)

    _, words = await refusal(remove(client, "rebasing"))
    assert "an unfinished rebase" in words
    assert tip[:8] in words
    await remove(client, "rebasing", force=True)
    collect_objects(repository)

    assert list((await restore_trash(client, "rebasing")).warnings) == []
    assert "rebase in progress" in git(tree, "status")
    assert git(repository, "log", "-1", "--format=%s", tip) == "more of mine"


async def test_what_an_archive_has_beside_files_and_branch_is_at_risk_too(client: Client, repository: Path) -> None:
    trees = {}
    for name in ("staged", "autostash", "inner", "own ref"):
        trees[name] = Path((await client.create(repository, name=name)).worktree)
    (trees["staged"] / "both.txt").write_text("staged, then deleted\n")
    git(trees["staged"], "add", "-A")
    (trees["staged"] / "both.txt").unlink()
    git(trees["inner"], "worktree", "add", "-q", "--detach", "side")
    detached_commit(trees["inner"] / "side")
    tree = trees["own ref"]
    made = git(tree, "commit-tree", "-p", "HEAD", "-m", "of the worktree's own", "HEAD^{tree}")
    git(tree, "update-ref", "refs/worktree/mine", made)
    tree = trees["autostash"]
    (tree / "dir0" / "file0.txt").write_text("mine\n")
    git(tree, "commit", "-q", "-a", "-m", "mine")
    (repository / "dir0" / "file0.txt").write_text("theirs\n")
    git(repository, "commit", "-q", "-a", "-m", "theirs")
    (tree / "dir1" / "file1.txt").write_text("a day's work\n")
    with pytest.raises(subprocess.CalledProcessError):
        git(tree, "rebase", "--autostash", "main")
    stash = (Path(git(tree, "rev-parse", "--absolute-git-dir")) / "rebase-merge" / "autostash").read_text().strip()
    refusals = {name: (await refusal(remove(client, name)))[1] for name in trees}
    assert "of the worktree's own" in refusals["own ref"]
    for name in trees:
        await archive(client, name)

    refusals = {name: (await refusal(remove(client, name)))[1] for name in trees}

    assert "what was staged of both.txt" in refusals["staged"]
    assert "the worktree side inside it" in refusals["inner"]
    assert f"what was uncommitted before a rebase that is under way ({stash[:12]})" in refusals["autostash"]
    assert f"{made[:8]} only in the archive" in refusals["own ref"]
    for name in trees:
        await remove(client, name, force=True)
    collect_objects(repository)
    assert git(repository, "log", "-1", "--format=%s", made) == "of the worktree's own"


@pytest.mark.parametrize("way", ["archive", "rm"])
async def test_a_worktree_moved_back_after_its_session_was_removed_stays(
    client: Client, repository: Path, way: str
) -> None:
    tree = Path((await client.create(repository, name="moved")).worktree)
    (tree / "uncommitted.txt").write_text("only here\n")
    place = tree.with_name("away")
    tree.rename(place)
    await (archive if way == "archive" else remove)(client, "moved")
    place.rename(tree)

    reason, words = await refusal((restore if way == "archive" else restore_trash)(client, "moved"))

    assert (reason, "exists already" in words) == ("PATH_TAKEN", True), words
    assert (tree / "uncommitted.txt").read_text() == "only here\n"
    tree.rename(place)
    await (restore if way == "archive" else restore_trash)(client, "moved")
    assert (place / "uncommitted.txt").read_text() == "only here\n"
