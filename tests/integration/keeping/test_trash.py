"""The trash: no line of work is lost, and nothing of the user's is touched."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from rametd.domain.errors import RefNotFoundError
from rametd.git import Git, RepositoryInfo, Risk

from tests.support.repositories import Sample
from tests.support.worktrees import mess, tree_by_git_of_worktree


async def test_the_trash_keeps_everything_and_gives_it_back(
    git: Git, repo: RepositoryInfo, sample: Sample, tree: Sample, tmp_path: Path
) -> None:
    tip = tree.commit("work")
    mess(tree)
    expected = tree_by_git_of_worktree(tree)

    record = await git.trash(repo, "s-1", tree.path, "work")
    await git.remove_worktree(repo, tree.path, "work", delete_branch=True)
    sample.git("-c", "gc.reflogExpire=now", "gc", "-q", "--prune=now")

    assert (record.ref, record.branch_commit, record.skipped) == ("refs/ramet/trash/s-1", tip, ())
    assert record.size > 0
    assert sample.git("rev-parse", record.ref, f"{record.ref}^{{tree}}", f"{record.ref}^1").split() == [
        record.commit,
        expected,
        tip,
    ]
    again = tmp_path / "trees" / "s-2"
    await git.create_worktree(repo, again, "work", str(record.branch_commit), new_branch=True)
    sample.git("restore", f"--source={record.commit}", "--worktree", ":/", at=again)
    assert await git.tree(again) == expected
    assert sample.git("status", "--porcelain", at=again).splitlines()[:2] == [" D README.md", " M src/app.py"]
    await git.drop_trash(repo, "s-1")
    assert sample.git("for-each-ref", "refs/ramet") == ""


async def test_trashing_twice_loses_nothing_of_the_first(
    git: Git, repo: RepositoryInfo, sample: Sample, tree: Sample
) -> None:
    tree.write("first")
    first = await git.trash(repo, "s-1", tree.path, "work")
    assert await git.trash(repo, "s-1", tree.path, "work") == first
    (tree.path / "first").unlink()
    tree.write("second")

    second = await git.trash(repo, "s-1", tree.path, "work")

    assert sample.git("show", f"{second.commit}:second") == "text"
    assert sample.git("merge-base", "--is-ancestor", first.commit, second.commit) == ""


async def test_a_removal_repeated_after_a_kill_keeps_the_first_trash(
    git: Git, repo: RepositoryInfo, sample: Sample, tree: Sample
) -> None:
    tree.write("work")
    first = await git.trash(repo, "s-1", tree.path, "work")
    tree.path.rename(tree.path.with_name(".s-1.removing-0"))

    assert await git.trash(repo, "s-1", tree.path, "work") == first


async def test_commits_made_since_an_earlier_trash_are_kept_where_the_directory_is_gone(
    git: Git, repo: RepositoryInfo, sample: Sample, tree: Sample
) -> None:
    tree.write("uncommitted")
    first = await git.trash(repo, "s-1", tree.path, "work")
    tip = tree.commit("went on")
    shutil.rmtree(tree.path)

    second = await git.trash(repo, "s-1", tree.path, "work")
    await git.remove_worktree(repo, tree.path, "work", delete_branch=True)

    assert sample.git("merge-base", "--is-ancestor", tip, second.ref) == ""
    assert sample.git("rev-parse", f"{first.commit}^{{tree}}") == sample.git("rev-parse", f"{second.ref}^{{tree}}")
    kept = await git.kept(repo, second.ref)
    assert kept is not None
    assert (kept.branch_commit, kept.later, kept.changed) == (first.branch_commit, tip, ("uncommitted",))
    assert await git.trash(repo, "s-1", tree.path, "work") == replace(second, branch_commit=None)


async def test_a_branch_that_went_on_from_a_clean_tree_comes_back_where_it_was_and_tells_of_it(
    git: Git, repo: RepositoryInfo, sample: Sample, tree: Sample
) -> None:
    first = await git.trash(repo, "s-1", tree.path, "work")
    tip = tree.commit("went on")
    shutil.rmtree(tree.path)

    second = await git.trash(repo, "s-1", tree.path, "work")

    kept = await git.kept(repo, second.ref)
    assert kept is not None
    assert (kept.branch_commit, kept.later, kept.changed) == (first.branch_commit, tip, ())


async def test_a_branch_is_trashed_when_its_directory_is_gone(
    git: Git, repo: RepositoryInfo, sample: Sample, tree: Sample
) -> None:
    tip = tree.commit("work")
    shutil.rmtree(tree.path)

    record = await git.trash(repo, "s-1", tree.path, "work")

    assert sample.git("rev-parse", f"{record.ref}^1", f"{record.ref}^{{tree}}").split() == [
        tip,
        sample.git("rev-parse", f"{tip}^{{tree}}"),
    ]
    with pytest.raises(RefNotFoundError, match="is left"):
        await git.trash(repo, "s-2", tree.path.with_name("s-2"), "never")


async def test_work_is_trashed_when_the_git_file_was_deleted(
    git: Git, repo: RepositoryInfo, sample: Sample, tree: Sample
) -> None:
    tree.write("work")
    (tree.path / ".git").unlink()

    assert (await git.work_at_risk(repo, tree.path, "work", sample.head)).untracked == ("work",)
    record = await git.trash(repo, "s-1", tree.path, "work")

    assert sample.git("show", f"{record.commit}:work") == "text"


async def test_work_is_at_risk_and_trashed_when_the_entry_was_pruned(
    git: Git, repo: RepositoryInfo, sample: Sample, tree: Sample
) -> None:
    tip = tree.commit("committed")
    tree.write("work")
    shutil.rmtree(sample.path / ".git" / "worktrees" / "s-1")

    risk = await git.work_at_risk(repo, tree.path, "work", sample.head)
    record = await git.trash(repo, "s-1", tree.path, "work")

    assert risk.untracked == ("work",)
    assert risk.unique_commits == ((tip, "committed"),)
    assert sample.git("show", f"{record.commit}:work") == "text"


async def test_a_directory_that_is_no_worktree_is_neither_at_risk_nor_trashed(
    git: Git, repo: RepositoryInfo, sample: Sample, tree: Sample
) -> None:
    tip = tree.commit("committed")
    shutil.rmtree(tree.path)
    tree.write("of somebody else")
    shutil.rmtree(sample.path / ".git" / "worktrees" / "s-1")

    risk = await git.work_at_risk(repo, tree.path, "work", sample.head)
    record = await git.trash(repo, "s-1", tree.path, "work")

    assert risk == Risk((), (), ((tip, "committed"),))
    assert record.skipped == (f"{tree.path}: nothing says that it is a worktree",)
    assert sample.git("rev-parse", f"{record.commit}^1") == tip


async def test_the_users_own_checkout_can_be_looked_at(git: Git, repo: RepositoryInfo, sample: Sample) -> None:
    sample.write("mine")

    assert (await git.work_at_risk(repo, sample.path, "main", None)).untracked == ("mine",)
    assert sample.git("show", f"{(await git.trash(repo, 's-1', sample.path, 'main')).commit}:mine") == "text"


async def test_commits_of_a_branch_that_was_deleted_under_its_worktree_are_kept(
    git: Git, repo: RepositoryInfo, sample: Sample, tree: Sample
) -> None:
    tree.commit("one")
    tip = tree.commit("two")
    tree.write("untracked")
    sample.git("update-ref", "-d", "refs/heads/work")

    risk = await git.work_at_risk(repo, tree.path, "work", None)
    assert [commit for commit, _ in risk.unique_commits][:1] == [tip]
    record = await git.trash(repo, "s-1", tree.path, "work")

    kept = await git.kept(repo, record.ref)
    assert kept is not None
    assert (kept.branch_commit, kept.head, kept.changed) == (tip, "", ("untracked",))
    assert sample.git("merge-base", "--is-ancestor", tip, record.ref) == ""


async def test_a_worktree_whose_entry_is_gone_is_not_taken_for_the_main_one(
    git: Git, repo: RepositoryInfo, sample: Sample, tree: Sample
) -> None:
    tip = tree.commit("mine")
    tree.write("untracked")
    shutil.rmtree(Path((tree.path / ".git").read_text().removeprefix("gitdir: ").strip()))

    record = await git.trash(repo, "s-1", tree.path, "work")

    kept = await git.kept(repo, record.ref)
    assert kept is not None
    assert (kept.branch_commit, kept.head, kept.on, kept.index, kept.changed) == (tip, "", "", "", ("untracked",))
