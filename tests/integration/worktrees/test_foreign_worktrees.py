"""Removal and verification of worktrees that a person has moved, copied, pruned or replaced."""

import shutil
from pathlib import Path

import pytest
from rametd.domain.errors import WorktreeChangedError
from rametd.git import Git, Removal, RepositoryInfo
from rametd.git.registrations import REASON

from tests.support import repositories
from tests.support.repositories import Sample
from tests.support.worktrees import create, leftovers

pytestmark = pytest.mark.full


async def test_a_deleted_directory_frees_the_branch(
    git: Git, repo: RepositoryInfo, sample: Sample, trees: Path
) -> None:
    await create(git, repo, trees / "s-1", "one")
    shutil.rmtree(trees / "s-1")

    assert (await git.worktrees.remove(repo, trees / "s-1", "one", delete_branch=True)).left == ()
    assert leftovers(sample, trees) == []


async def test_a_pruned_entry_does_not_keep_the_directory(
    git: Git, repo: RepositoryInfo, sample: Sample, trees: Path
) -> None:
    await create(git, repo, trees / "s-1", "one")
    shutil.rmtree(sample.path / ".git" / "worktrees" / "s-1")

    assert (await git.worktrees.remove(repo, trees / "s-1", "one", delete_branch=True)).left == ()
    assert leftovers(sample, trees) == []


async def test_a_deleted_git_file_does_not_keep_the_directory(
    git: Git, repo: RepositoryInfo, sample: Sample, trees: Path
) -> None:
    await create(git, repo, trees / "s-1", "one")
    (trees / "s-1" / ".git").unlink()

    assert (await git.worktrees.remove(repo, trees / "s-1", "one", delete_branch=True)).left == ()
    assert leftovers(sample, trees) == []


async def test_a_worktree_that_was_moved_is_left_where_it_is(
    git: Git, repo: RepositoryInfo, sample: Sample, trees: Path
) -> None:
    await create(git, repo, trees / "s-1", "one")
    sample.git("worktree", "unlock", str(trees / "s-1"))
    sample.git("worktree", "move", str(trees / "s-1"), str(trees / "moved"))

    removal = await git.worktrees.remove(repo, trees / "s-1", "one", delete_branch=True)

    assert removal == Removal(None, (f"branch one: it is checked out at {trees / 'moved'}",))
    await git.worktrees.verify(trees / "moved", "one")


async def test_a_worktree_of_another_ramet_with_the_same_name_stays_locked_when_ours_goes(
    git: Git, repo: RepositoryInfo, sample: Sample, trees: Path
) -> None:
    theirs, ours = trees / "theirs" / "landing-0123456789", trees / "ours" / "landing-0123456789"
    for path in (theirs, ours):
        sample.git("worktree", "add", "-q", "--detach", "--lock", "--reason", REASON, str(path))

    await git.landing.remove_tree(repo, ours)

    assert not ours.exists()
    assert f"worktree {theirs}" in sample.git("worktree", "list", "--porcelain")
    assert f"locked {REASON}" in sample.git("worktree", "list", "--porcelain")


async def test_a_copy_of_a_worktree_is_not_removed_for_it(
    git: Git, repo: RepositoryInfo, sample: Sample, trees: Path
) -> None:
    await create(git, repo, trees / "s-1", "one")
    shutil.copytree(trees / "s-1", trees / "s-2")

    removal = await git.worktrees.remove(repo, trees / "s-2", "two", delete_branch=True)

    assert removal.left == (f"{trees / 's-2'}: it is a copy of another worktree",)
    with pytest.raises(WorktreeChangedError, match="copy of the worktree"):
        await git.worktrees.verify(trees / "s-2", "one")
    await git.worktrees.verify(trees / "s-1", "one")


async def test_another_repository_at_the_path_is_not_removed(
    git: Git, repo: RepositoryInfo, sample: Sample, environment: dict[str, str], trees: Path
) -> None:
    await create(git, repo, trees / "s-1", "one")
    shutil.rmtree(trees / "s-1")
    repositories.plain(trees / "s-1", environment)

    removal = await git.worktrees.remove(repo, trees / "s-1", "one", delete_branch=True)

    assert removal == Removal(sample.head, (f"{trees / 's-1'}: it is a separate repository",))
    assert (trees / "s-1" / "README.md").exists()


async def test_a_symbolic_link_at_the_path_is_not_followed(
    git: Git, repo: RepositoryInfo, sample: Sample, trees: Path
) -> None:
    await create(git, repo, trees / "s-1", "one")
    (trees / "s-2").symlink_to(trees / "s-1")

    removal = await git.worktrees.remove(repo, trees / "s-2", "two", delete_branch=True)

    assert removal.left == (f"{trees / 's-2'}: it is a symbolic link",)
    await git.worktrees.verify(trees / "s-1", "one")


async def test_the_users_own_checkout_is_never_removed(git: Git, repo: RepositoryInfo, sample: Sample) -> None:
    for path in (sample.path, sample.path.parent):
        with pytest.raises(WorktreeChangedError, match="never removed"):
            await git.worktrees.remove(repo, path, "main", delete_branch=True)


async def test_a_git_directory_inside_the_worktree_of_another_is_not_climbed_to(
    git: Git, repo: RepositoryInfo, sample: Sample
) -> None:
    inside = sample.path / "untracked-folder"
    inside.mkdir()

    with pytest.raises(WorktreeChangedError, match=r"its \.git file is missing"):
        await git.snapshots.take(inside)
    inside.rmdir()


async def test_read_only_folders_and_odd_names_are_removed(
    git: Git, repo: RepositoryInfo, sample: Sample, trees: Path
) -> None:
    path = trees / "s-1[x]"
    await create(git, repo, path, "one")
    sample.write("cache/deep/file", at=path)
    (path / "cache" / "deep").chmod(0o500)
    (path / "cache").chmod(0o500)

    assert (await git.worktrees.remove(repo, path, "one", delete_branch=True)).left == ()
    assert leftovers(sample, trees) == []


async def test_a_branch_that_has_moved_is_not_deleted(
    git: Git, repo: RepositoryInfo, sample: Sample, trees: Path
) -> None:
    await create(git, repo, trees / "s-1", "one")
    tip = sample.commit("work", at=trees / "s-1")

    assert (await git.worktrees.undo_create(repo, trees / "s-1", "one", sample.head)).left == (
        f"branch one: it has moved on to {tip[:12]}",
    )
    assert await git.branches.delete(repo, "one", sample.head) == f"branch one: it has moved on to {tip[:12]}"
    assert await git.branches.delete(repo, "main", sample.head) == f"branch main: it is checked out at {sample.path}"
    assert await git.branches.delete(repo, "one", tip) is None
    assert await git.branches.delete(repo, "one", tip) is None


async def test_settings_of_a_deleted_branch_go_with_it(
    git: Git, repo: RepositoryInfo, sample: Sample, trees: Path
) -> None:
    await create(git, repo, trees / "s-1", "one.two")
    sample.git("config", "branch.one.two.remote", "origin")
    sample.git("config", "branch.one.remote", "origin")

    await git.worktrees.remove(repo, trees / "s-1", "one.two", delete_branch=True)

    assert sample.git("config", "--get-regexp", r"^branch\.") == "branch.one.remote origin"
    sample.git("config", "--remove-section", "branch.one")


async def test_git_itself_does_not_prune_or_remove_our_worktrees(
    git: Git, repo: RepositoryInfo, sample: Sample, trees: Path
) -> None:
    await create(git, repo, trees / "s-1", "one")

    with pytest.raises(AssertionError, match="in use by ramet"):
        sample.git("worktree", "remove", "--force", str(trees / "s-1"))
    (trees / "s-1").rename(trees / "away")
    sample.git("worktree", "prune", "--expire", "now")
    (trees / "away").rename(trees / "s-1")

    await git.worktrees.verify(trees / "s-1", "one")


async def test_verifying_says_which_end_is_wrong(git: Git, repo: RepositoryInfo, sample: Sample, trees: Path) -> None:
    path = trees / "s-1"
    await create(git, repo, path, "one")

    sample.git("checkout", "-q", "--detach", at=path)
    with pytest.raises(WorktreeChangedError, match="checked out, not one"):
        await git.worktrees.verify(path, "one")
    await git.worktrees.verify(path, None)
    (sample.path / ".git" / "worktrees" / "s-1" / "gitdir").unlink()
    with pytest.raises(WorktreeChangedError, match="half registered"):
        await git.worktrees.verify(path, None)
    shutil.rmtree(sample.path / ".git" / "worktrees" / "s-1")
    with pytest.raises(WorktreeChangedError, match="registered nowhere"):
        await git.worktrees.verify(path, None)
    shutil.rmtree(path)
    with pytest.raises(WorktreeChangedError, match="is gone"):
        await git.worktrees.verify(path, None)
