"""Bringing a base into a branch, and a branch forward: what is not ours to take back or to move stays."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from rametd.domain.errors import WorktreeChangedError
from rametd.git import Git, RepositoryInfo

from tests.support import repositories
from tests.support.repositories import Sample


@pytest.fixture
def sample(tmp_path: Path) -> Sample:
    return repositories.plain(tmp_path / "repo", repositories.git_environment(tmp_path / "home"))


@pytest.fixture
async def git(sample: Sample) -> AsyncIterator[Git]:
    git = Git(sample.environment, threads=2)
    yield git
    await git.aclose()


@pytest.fixture
async def repo(git: Git, sample: Sample) -> RepositoryInfo:
    return await git.discover(sample.path)


@pytest.fixture
async def tree(git: Git, repo: RepositoryInfo, sample: Sample, tmp_path: Path) -> Sample:
    (tmp_path / "trees").mkdir()
    await git.create_worktree(repo, tmp_path / "trees" / "s-1", "work", sample.head, new_branch=True)
    return Sample(tmp_path / "trees" / "s-1", sample.environment)


async def test_only_the_merge_that_brings_the_commit_in_is_taken_back(git: Git, sample: Sample, tree: Sample) -> None:
    base = sample.commit("base")
    tree.commit("own")
    tree.git("merge", "--no-commit", "--no-ff", base)
    tree.write("resolved by hand")

    await git.abort_sync(tree.path, tree.head)
    assert tree.git("rev-parse", "MERGE_HEAD") == base
    await git.abort_sync(tree.path, base)
    with pytest.raises(AssertionError):
        tree.git("rev-parse", "--verify", "--quiet", "MERGE_HEAD")


async def test_a_rebase_moves_no_other_branch(git: Git, sample: Sample, tree: Sample) -> None:
    sample.git("config", "rebase.updateRefs", "true")
    first = tree.commit("first")
    tree.commit("second")
    sample.git("branch", "stacked", first)
    base = sample.commit("base")

    synced = await git.sync(tree.path, "work", base, rebase=True, message="")

    assert (synced.new, synced.commits) == (tree.head, 1)
    assert sample.git("rev-parse", "stacked") == first


@pytest.mark.parametrize("rebase", [False, True])
@pytest.mark.parametrize("forward", [False, True])
async def test_nothing_that_is_ignored_is_overwritten(
    git: Git, sample: Sample, tree: Sample, rebase: bool, forward: bool
) -> None:
    if not forward:
        tree.write("own")
        tree.commit("own")
    ignored = {".env": "SECRET=mine\n", "cache/big": "computed for hours\n", "folder": "a file of mine\n"}
    sample.write(".git/info/exclude", ".env\ncache\nfolder\n")
    for name, content in ignored.items():
        tree.write(name, content)
    for name in (".env", "cache", "folder/below"):
        sample.write(name, "the base's\n")
    sample.git("add", "--force", ".env", "cache", "folder/below")
    base, before = sample.commit("base"), tree.head

    with pytest.raises(WorktreeChangedError, match=r"in the way: \.env, cache/big, folder$"):
        await git.sync(tree.path, "work", base, rebase=rebase, message="base")

    assert tree.head == before
    assert {name: (tree.path / name).read_text() for name in ignored} == ignored
    for name in ignored:
        (tree.path / name).rename(tree.path.parent / Path(name).name)
    assert (await git.sync(tree.path, "work", base, rebase=rebase, message="base")).commits == 1
    assert (tree.path / "cache").read_text() == "the base's\n"


async def test_what_an_own_commit_added_for_a_while_overwrites_nothing_when_it_is_rebased(
    git: Git, sample: Sample, tree: Sample
) -> None:
    tree.write("secret")
    tree.commit("by mistake")
    tree.git("rm", "-q", "secret")
    tree.commit("taken back")
    sample.write(".git/info/exclude", "secret\n")
    tree.write("secret", "mine\n")
    sample.write("base")
    base = sample.commit("base")

    with pytest.raises(WorktreeChangedError, match=r"in the way: secret$"):
        await git.sync(tree.path, "work", base, rebase=True, message="base")

    assert (tree.path / "secret").read_text() == "mine\n"


async def test_a_tracked_directory_that_becomes_a_file_is_in_nobodys_way(
    git: Git, sample: Sample, tree: Sample
) -> None:
    sample.write("place/one")
    first = sample.commit("a directory")
    await git.sync(tree.path, "work", first, rebase=False, message="base")
    sample.git("rm", "-rq", "place")
    sample.write("place", "a file\n")

    await git.sync(tree.path, "work", sample.commit("a file"), rebase=False, message="base")

    assert (tree.path / "place").read_text() == "a file\n"


async def test_a_branch_that_was_deleted_is_said(git: Git, sample: Sample, tree: Sample) -> None:
    sample.git("update-ref", "-d", "refs/heads/work")
    with pytest.raises(WorktreeChangedError, match="no commit"):
        await git.sync(tree.path, "work", sample.head, rebase=False, message="")


async def test_a_branch_is_not_moved_under_a_checkout_that_cannot_be_found(git: Git, tmp_path: Path) -> None:
    environment = repositories.git_environment(tmp_path / "home")
    sample = repositories.plain(tmp_path / "apart", environment, "--separate-git-dir", str(tmp_path / "elsewhere"))
    repo, old = await git.discover(sample.path), sample.head
    branch = sample.git("branch", "--show-current")
    new = sample.git("commit-tree", "-p", old, "-m", "new", f"{old}^{{tree}}")

    assert "checkout" in await git.landing.targets.move(repo, branch, old, new, "land")
    assert sample.head == old


async def test_a_branch_that_its_owner_has_put_back_is_not_moved(
    git: Git, repo: RepositoryInfo, sample: Sample
) -> None:
    branch, old = sample.git("branch", "--show-current"), sample.head
    new = sample.git("commit-tree", "-p", old, "-m", "new", f"{old}^{{tree}}")
    sample.git("reset", "-q", "--hard", "HEAD~1")
    back = sample.head

    assert "has moved" in await git.landing.targets.move(repo, branch, old, new, "land")
    assert sample.head == back
