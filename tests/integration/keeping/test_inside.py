"""Repositories and worktrees inside a worktree: what they have is kept and comes back with it."""

from collections.abc import Callable
from pathlib import Path

import pytest
from rametd.git import Git, RepositoryInfo

from tests.support import repositories
from tests.support.repositories import Sample


async def test_commits_of_a_submodule_that_were_never_pushed_are_kept(
    git: Git, tmp_path: Path, environment: dict[str, str]
) -> None:
    sample = repositories.with_submodule(tmp_path / "sub", environment)
    repo = await git.discover(sample.path)
    (tmp_path / "trees").mkdir()
    tree = Sample(tmp_path / "trees" / "s-1", environment)
    await git.create_worktree(repo, tree.path, "work", sample.head, new_branch=True)
    tree.write("lib/made", "1\n")
    tree.git("add", "made", at=tree.path / "lib")
    tree.git("commit", "-q", "-m", "made", at=tree.path / "lib")
    inner = tree.git("rev-parse", "HEAD", at=tree.path / "lib")
    tree.git("commit", "-q", "-a", "-m", "the submodule went on")

    record = await git.archive(repo, "s-1", tree.path, "work")
    await git.remove_worktree(repo, tree.path, "work", delete_branch=False)

    assert sample.git("merge-base", "--is-ancestor", inner, record.commit) == ""
    kept = await git.kept(repo, record.ref)
    assert kept is not None
    warnings = await git.revive(repo, tree.path, kept, "work", kept.branch_commit, new_branch=False)
    assert (tree.path / "lib" / "made").read_text() == "1\n"
    assert any("never pushed" in words for words in warnings)
    sample.git("fsck", "--connectivity-only")


async def test_repositories_inside_the_worktree_are_trashed_too(
    git: Git, tmp_path: Path, environment: dict[str, str]
) -> None:
    sample = repositories.with_submodule(tmp_path / "sub", environment)
    repo = await git.discover(sample.path)
    (tmp_path / "trees").mkdir()
    tree = Sample(tmp_path / "trees" / "s-1", environment)
    await git.create_worktree(repo, tree.path, "work", sample.head, new_branch=True)
    tree.write("lib/deep/in a submodule of a submodule", "1\n")
    tree.git("init", "-q", "own")
    tree.write("own/uncommitted", "2\n")
    tree.git("worktree", "add", "-q", "-b", "side", "side")
    tree.write("side/uncommitted", "3\n")

    record = await git.trash(repo, "s-1", tree.path, "work")
    await git.remove_worktree(repo, tree.path, "work", delete_branch=True)

    body = sample.git("log", "-1", "--format=%b", record.commit).splitlines()
    lines = [line.split(" ", 2) for line in body if line.startswith(("nested", "worktree"))]
    nested = {place: commit for _, commit, place in lines}
    assert sorted((word, place) for word, _, place in lines) == [
        ("nested", "lib/deep"),
        ("nested", "own"),
        ("worktree", "side"),
    ]
    assert sample.git("show", f"{nested['lib/deep']}:in a submodule of a submodule") == "1"
    assert sample.git("show", f"{nested['own']}:uncommitted") == "2"
    assert sample.git("show", f"{nested['side']}:uncommitted") == "3"
    assert set(nested.values()) <= set(sample.git("log", "-1", "--format=%P", record.commit).split())
    sample.git("fsck", "--connectivity-only")


@pytest.mark.parametrize("what", ["branch", "stash", "tag", "staged"])
async def test_what_only_a_repository_inside_has_counts_as_not_read(
    git: Git, repo: RepositoryInfo, tree: Sample, what: str
) -> None:
    inner = repositories.unborn(tree.path / "sub", tree.environment)
    inner.write("first")
    inner.commit("first")
    assert (await git.trash(repo, "s-1", tree.path, "work")).unread == ()
    if what == "branch":
        inner.git("switch", "-qc", "other")
        inner.write("second")
        inner.commit("second")
        inner.git("switch", "-q", "-")
    elif what == "tag":
        inner.git("switch", "-q", "--detach")
        inner.write("second")
        inner.commit("second")
        inner.git("tag", "v1")
        inner.git("switch", "-q", "-")
    else:
        inner.write("first", "staged")
        inner.git("add", "first")
        if what == "stash":
            inner.git("stash", "-q")
        else:
            inner.write("first", "later")

    (words,) = (await git.trash(repo, "s-1", tree.path, "work")).unread

    assert {"branch": "other", "stash": "stash", "tag": "tags/v1", "staged": "first"}[what] in words
    assert words.startswith("sub is a repository of its own")


async def put_away_and_bring_back(
    git: Git, repo: RepositoryInfo, tree: Sample, meanwhile: Callable[[], object] = lambda: None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What both tell."""
    record = await git.trash(repo, "s-1", tree.path, "work")
    assert record.unread == ()
    await git.remove_worktree(repo, tree.path, "work", delete_branch=False)
    meanwhile()
    kept = await git.kept(repo, record.ref)
    assert kept is not None
    back = await git.revive(repo, tree.path, kept, "work", kept.branch_commit, new_branch=False)
    return record.skipped, back


def status(tree: Sample, place: str) -> str:
    return tree.git("status", "--porcelain", "--branch", "--untracked-files=all", at=tree.path / place)


@pytest.mark.parametrize(
    ("place", "detached"), [("side", False), ("deep/er", True), ("debug.log", False), ('odd \n"ü', True)]
)
async def test_a_worktree_inside_is_a_risk_and_told_of_and_comes_back_registered_as_it_was(
    git: Git, repo: RepositoryInfo, sample: Sample, tree: Sample, place: str, detached: bool
) -> None:
    tree.git("worktree", "add", "-q", *(["--detach"] if detached else ["-b", "mine"]), place)
    side = Sample(tree.path / place, tree.environment)
    side.commit("on its own")
    side.write("staged", "staged\n")
    side.git("add", "staged")
    side.write("staged", "then changed\n")
    side.write("untracked")
    (side.path / "empty").mkdir()
    head, before = side.head, status(tree, place)
    words = f"the worktree {place} inside it ({'with a detached HEAD' if detached else 'of branch mine'})"
    risk = await git.work_at_risk(repo, tree.path, "work", sample.head)
    assert risk.inside == (words,)
    assert risk.untracked == (("deep/",) if place == "deep/er" else ())

    def gone() -> None:
        assert sample.git("worktree", "list").count("\n") == 0
        sample.git("-c", "gc.reflogExpire=now", "gc", "-q", "--prune=now")

    told, back = await put_away_and_bring_back(git, repo, tree, gone)

    assert told == (f"{words} goes with it, and comes back with it",)
    assert back == ()
    assert (side.head, status(tree, place)) == (head, before)
    assert side.git("show", ":staged") == "staged"
    assert (side.path / "empty").is_dir()
    assert "locked" not in sample.git("worktree", "list", "--porcelain").split(str(side.path))[1]
    side.git("worktree", "prune", "-v")
    sample.git("fsck", "--connectivity-only")


async def test_a_worktree_inside_whose_branch_went_on_comes_back_beside_it_and_says_how_to_take_it_up(
    git: Git, repo: RepositoryInfo, sample: Sample, tree: Sample
) -> None:
    tree.git("worktree", "add", "-q", "-b", "mine", "side")
    was = sample.git("rev-parse", "mine")
    tree.write("side/work", "work\n")

    _, (words,) = await put_away_and_bring_back(
        git, repo, tree, lambda: sample.git("branch", "-f", "mine", f"{sample.head}~1")
    )

    assert words.startswith("in side: mine, which it had checked out, is not as it was")
    assert "`git switch mine`" in words
    assert tree.git("rev-parse", "HEAD", at=tree.path / "side") == was
    assert (tree.path / "side" / "work").read_text() == "work\n"


async def test_a_worktree_inside_that_cannot_be_registered_comes_back_as_files_with_the_command_that_makes_one(
    git: Git, repo: RepositoryInfo, tree: Sample
) -> None:
    tree.git("worktree", "add", "-q", "-b", "mine", "side")
    tree.write("side/work", "work\n")
    tree.git("checkout", "-q", "--orphan", "unborn", at=tree.path / "side")

    _, (words,) = await put_away_and_bring_back(git, repo, tree)

    assert "`git worktree add PATH" in words
    assert (tree.path / "side" / "work").read_text() == "work\n"


async def test_what_is_inside_of_what_is_inside_comes_back_too_and_all_of_it_again_after_a_kill_in_the_middle(
    git: Git, repo: RepositoryInfo, sample: Sample, tree: Sample
) -> None:
    tree.git("worktree", "add", "-q", "-b", "outer", "outer")
    tree.git("worktree", "add", "-q", "-b", "inner", "outer/inner")
    tree.write("outer/inner/work", "work\n")
    repositories.unborn(tree.path / "outer" / "own", tree.environment).write("file", "file\n")
    record = await git.trash(repo, "s-1", tree.path, "work")
    await git.remove_worktree(repo, tree.path, "work", delete_branch=False)
    kept = await git.kept(repo, record.ref)
    assert kept is not None

    for _ in range(2):
        back = await git.revive(repo, tree.path, kept, "work", kept.branch_commit, new_branch=False)
        assert back == ("in outer: own was a repository of its own: its files are back, its history is not",)
        assert (tree.path / "outer" / "own" / "file").read_text() == "file\n"
        assert status(tree, "outer/inner").splitlines() == ["## inner", "?? work"]
        # As where a kill came between an entry and its files.
        (tree.path / "outer" / "inner" / ".git").unlink()
    await git.undo_create(repo, tree.path, "work", None)
    assert sample.git("worktree", "list").count("\n") == 0


async def test_other_branches_of_a_submodule_whose_git_directory_goes_with_the_worktree_are_kept_in_ours(
    git: Git, tmp_path: Path, environment: dict[str, str]
) -> None:
    sample = repositories.with_submodule(tmp_path / "sub", environment)
    repo = await git.discover(sample.path)
    (tmp_path / "trees").mkdir()
    tree = Sample(tmp_path / "trees" / "s-1", environment)
    await git.create_worktree(repo, tree.path, "work", sample.head, new_branch=True)
    lib = Sample(tree.path / "lib", environment)
    lib.git("switch", "-qc", "other")
    other = lib.commit("on another branch")
    lib.git("switch", "-q", "--detach", "HEAD~1")

    record = await git.trash(repo, "s-1", tree.path, "work")
    await git.remove_worktree(repo, tree.path, "work", delete_branch=True)

    assert record.unread == ()
    assert sample.git("merge-base", "--is-ancestor", other, record.commit) == ""
