"""Work at risk: exactly the work that exists nowhere else."""

import shutil
from pathlib import Path

import pytest
from rametd.git import Git, RepositoryInfo, Risk

from tests.support import repositories
from tests.support.repositories import Sample
from tests.support.worktrees import mixed_changes

pytestmark = pytest.mark.full


async def test_a_fresh_worktree_has_nothing_at_risk(
    git: Git, repo: RepositoryInfo, sample: Sample, tree: Sample
) -> None:
    assert not await git.worktrees.work_at_risk(repo, tree.path, "work", sample.head)


async def test_everything_at_risk_is_listed(git: Git, repo: RepositoryInfo, sample: Sample, tree: Sample) -> None:
    base = sample.head
    tip = tree.commit("Fix it: now")
    mixed_changes(tree)

    assert await git.worktrees.work_at_risk(repo, tree.path, "work", base) == Risk(
        ("README.md", "src/app.py"), ("link", "new/", 'odd \n"name" ü', "run.sh"), ((tip, "Fix it: now"),)
    )


async def test_commits_known_elsewhere_are_not_at_risk(
    git: Git, repo: RepositoryInfo, sample: Sample, tree: Sample
) -> None:
    base = sample.head
    for keeper in ("branch copy", "tag keep", "update-ref refs/remotes/origin/work"):
        tip = tree.commit("more")
        assert (await git.worktrees.work_at_risk(repo, tree.path, "work", base)).unique_commits == ((tip, "more"),)
        sample.git(*keeper.split(), tip)
        assert (await git.worktrees.work_at_risk(repo, tree.path, "work", base)).unique_commits == ()


async def test_our_own_refs_and_the_stash_do_not_count_as_elsewhere(
    git: Git, repo: RepositoryInfo, sample: Sample, tree: Sample
) -> None:
    tip = tree.commit("work")
    sample.git("update-ref", "refs/ramet/checkpoints/x", tip)

    assert len((await git.worktrees.work_at_risk(repo, tree.path, "work", sample.head)).unique_commits) == 1


async def test_commits_on_a_detached_head_are_at_risk(
    git: Git, repo: RepositoryInfo, sample: Sample, tree: Sample
) -> None:
    tree.git("checkout", "-q", "--detach")
    tip = tree.commit("adrift")

    assert (await git.worktrees.work_at_risk(repo, tree.path, "work", sample.head)).unique_commits == ((tip, "adrift"),)


async def test_a_base_that_no_branch_holds_is_not_the_sessions_work(
    git: Git, repo: RepositoryInfo, sample: Sample, tree: Sample
) -> None:
    base = sample.head
    sample.git("commit", "-q", "--amend", "-m", "amended")

    assert not await git.worktrees.work_at_risk(repo, tree.path, "work", base)
    assert len((await git.worktrees.work_at_risk(repo, tree.path, "work", None)).unique_commits) == 1


async def test_commits_are_at_risk_even_when_the_directory_is_gone(
    git: Git, repo: RepositoryInfo, sample: Sample, tree: Sample
) -> None:
    tip = tree.commit("work")
    shutil.rmtree(tree.path)

    assert await git.worktrees.work_at_risk(repo, tree.path, "work", sample.head) == Risk((), (), ((tip, "work"),))


async def test_changes_inside_a_submodule_are_at_risk(git: Git, tmp_path: Path, environment: dict[str, str]) -> None:
    sample = repositories.with_submodule(tmp_path / "sub", environment)
    sample.write("lib/new")

    assert (
        await git.worktrees.work_at_risk(await git.discover(sample.path), sample.path, "main", None)
    ).uncommitted == ("lib",)
