"""Bringing files back at the level of git: what comes in the way at the last moment, and commits that nobody has kept."""

import pytest
from rametd.git import Git

from tests.support.git_fixtures import environment, git, repo, sample, tree
from tests.support.repositories import Sample

__all__ = ["environment", "git", "repo", "sample", "tree"]


@pytest.mark.parametrize("name", ["README.md", "untracked", "ignored", "folder/ignored"])
async def test_what_comes_in_the_way_after_the_look_is_kept_before_anything_is_written(
    git: Git, sample: Sample, tree: Sample, name: str
) -> None:
    for path in ("README.md", "untracked", "ignored", "folder"):
        tree.write(path, "of then\n")
    target = tree.commit("then")
    tree.git("reset", "-q", "--hard", "HEAD~1")
    sample.write(".git/info/exclude", "ignored\nfolder\n")
    kept: list[str] = []

    async def keep(now: str) -> None:
        kept.append(now)
        if len(kept) == 1:
            tree.write(name, "mine, just now\n")

    await git.bring_back(tree.path, target, keep)

    assert len(kept) == 2
    assert tree.git("show", f"{kept[1]}:{name}") == "mine, just now"
    assert (tree.path / name.partition("/")[0]).read_text() == "of then\n"
    assert not list((sample.path / ".git/ramet").glob("index-*"))


async def test_files_come_back_by_way_of_sparse_and_split_indexes_too(git: Git, tree: Sample) -> None:
    tree.write("inside/a", "of then\n")
    tree.write("outside/b", "of then\n")
    target = tree.commit("then")
    tree.write("inside/a", "of now\n")
    tree.write("outside/b", "of now\n")
    tree.commit("now")
    tree.git("sparse-checkout", "set", "inside")
    tree.git("update-index", "--split-index")

    async def keep(now: str) -> None:
        del now

    await git.bring_back(tree.path, target, keep)

    assert (tree.path / "inside/a").read_text() == "of then\n"
    assert not (tree.path / "outside").exists()


async def test_a_branch_with_a_commit_that_nobody_has_kept_stays(git: Git, sample: Sample, tree: Sample) -> None:
    kept = tree.commit("kept")
    tree.commit("not kept")
    later = tree.head

    assert not (await git.move_back(tree.path, sample.head, own="work", tip=kept, leave=True)).done
    assert tree.head == later
    assert (await git.move_back(tree.path, sample.head, own="work", tip=later)).done
    assert tree.head == sample.head
