"""Nested repositories and worktrees: a refusal names work that only they have; they are recorded
unchanged, and restored."""

import os
from pathlib import Path

import pytest
from ramet.v1 import session_pb2, worktree_pb2
from rametd.platform.files import tree_bytes

from tests.support.archiving import archive, refusal, remove, restore, restore_trash
from tests.support.daemon import Client, git

pytestmark = pytest.mark.full


def repository_in(tree: Path, place: str = "own") -> Path:
    """Create a nested repository with a commit, another branch, two stashes, a staged and an
    untracked file."""
    own = tree / place
    own.mkdir()
    git(own, "init", "-q", "-b", "main")
    (own / "file").write_text("one\n")
    git(own, "add", "file")
    git(own, "commit", "-qm", "one")
    git(own, "branch", "other", git(own, "commit-tree", "-p", "HEAD", "-m", "apart", "HEAD^{tree}"))
    for text in ("two\n", "three\n"):
        (own / "file").write_text(text)
        git(own, "stash", "-q")
    (own / "staged").write_text("staged\n")
    git(own, "add", "staged")
    (own / "new").write_text("new\n")
    return own


def everything(own: Path) -> list[str]:
    return [git(own, *words.split()) for words in ("status --porcelain --branch", "for-each-ref", "stash list")]


async def collected(client: Client, name: str) -> str:
    answer = await client.worktrees.CollectGarbage(worktree_pb2.CollectGarbageRequest(dry_run=True))
    return next(item.reason for item in answer.items if item.name == name)


@pytest.mark.parametrize("way", ["archive", "rm"])
async def test_a_nested_repository_is_reported_and_restored(client: Client, repository: Path, way: str) -> None:
    made = await client.create(repository, name="made")
    tree = Path(made.worktree)
    own = repository_in(tree)
    (own / ".git" / "large").write_bytes(os.urandom(1 << 20))
    before = everything(own)
    if way == "rm":
        assert "1 untracked (own)" in (await refusal(remove(client, "made")))[1]

    for _ in range(2):
        gone = await archive(client, "made") if way == "archive" else await remove(client, "made", force=True)

        assert list(gone.warnings) == []
        assert not tree.exists()
        assert not isinstance(gone, session_pb2.ArchiveSessionResponse) or gone.freed_bytes < 1 << 20
        back = await restore(client, "made") if way == "archive" else await restore_trash(client, "made")
        assert list(back.warnings) == []
        assert everything(own) == before

    assert git(repository, "for-each-ref", "refs/ramet/trash", "refs/ramet/archive") == ""


async def test_a_nested_repository_that_cannot_be_copied_is_restored(client: Client, repository: Path) -> None:
    tree = Path((await client.create(repository, name="made")).worktree)
    own = repository_in(tree)
    before = everything(own)
    deep = own / ".git"
    while len(str(deep)) < 3860:
        deep /= "x" * 200
    deep /= "x" * (4090 - len(str(deep)))
    deep.mkdir(parents=True)  # as deep as possible

    await archive(client, "made")
    assert list((await restore(client, "made")).warnings) == []

    assert everything(own) == before
    assert deep.exists()


async def test_what_is_shelved_goes_with_the_trash(client: Client, repository: Path) -> None:
    tree = Path((await client.create(repository, name="made")).worktree)
    repository_in(tree)
    git(tree, "worktree", "add", "-q", "-b", "mine", "side")
    await archive(client, "made")
    await remove(client, "made", force=True)
    (entry,) = (await client.worktrees.ListTrash(worktree_pb2.ListTrashRequest())).entries
    shelf = tree.with_name(f".{tree.name}.shelved")
    assert entry.bytes > tree_bytes(shelf) > 0

    await client.worktrees.EmptyTrash(worktree_pb2.EmptyTrashRequest(entries=["made"]))

    assert not shelf.exists()
    assert not list((repository / ".git" / "ramet").glob("shelved-*"))
    assert git(repository, "for-each-ref", "refs/ramet") == ""


async def test_what_an_archive_alone_has_of_what_was_inside_is_a_risk_to_its_removal(
    client: Client, repository: Path
) -> None:
    tree = Path((await client.create(repository, name="made")).worktree)
    repository_in(tree)
    git(tree, "worktree", "add", "-q", "-b", "mine", "side")
    (tree / "side" / "work").write_text("work\n")
    git(tree, "worktree", "add", "-q", "-b", "unchanged", "clean")
    (tree / "dir0" / "file0.txt").write_text("staged\n")
    git(tree, "add", "dir0")
    git(tree, "checkout", "-q", "HEAD", "--", "dir1")
    (tree / "dir0" / "file0.txt").write_text("line one\nline two\n")
    await archive(client, "made")

    reason, words = await refusal(remove(client, "made"))

    assert reason == "WORK_AT_RISK"
    assert "the repository own inside it" in words
    assert "the worktree side inside it" in words
    assert "clean" not in words
    assert "what was staged of dir0/file0.txt" in words
    await remove(client, "made", force=True)
    assert (await restore_trash(client, "made")).session.id == tree.name
    assert (tree / "side" / "work").read_text() == "work\n"
    assert git(tree / "own", "stash", "list").count("\n") == 1


async def test_an_archive_of_which_nothing_is_left_inside_may_go(client: Client, repository: Path) -> None:
    tree = Path((await client.create(repository, name="made")).worktree)
    git(tree, "worktree", "add", "-q", "-b", "unchanged", "clean")
    await archive(client, "made")

    await remove(client, "made")

    assert git(repository, "rev-parse", "unchanged") == git(repository, "rev-parse", "main")
