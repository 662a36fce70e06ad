"""Restore of files at the level of git: files that appear at the last moment, and unrecorded
commits."""

import pytest
from rametd.domain.errors import GitFailedError
from rametd.git import Git

from tests.support.repositories import Sample, fingerprint


@pytest.mark.parametrize("name", ["README.md", "untracked", "ignored", "folder/ignored"])
async def test_a_file_created_after_the_check_is_saved_first(git: Git, sample: Sample, tree: Sample, name: str) -> None:
    for path in ("README.md", "untracked", "ignored", "folder"):
        tree.write(path, "of then\n")
    target = await git.snapshots.take(tree.path)
    tree.commit("then")
    tree.git("reset", "-q", "--hard", "HEAD~1")
    sample.write(".git/info/exclude", "ignored\nfolder\n")
    saved: list[str] = []

    async def keep(now: str) -> None:
        saved.append(now)
        if len(saved) == 1:
            tree.write(name, "mine, just now\n")

    await git.snapshots.restore_files(tree.path, target, keep)

    assert len(saved) == 2
    assert tree.git("show", f"{saved[1]}:{name}") == "mine, just now"
    assert (tree.path / name.partition("/")[0]).read_text() == "of then\n"
    assert not list((sample.path / ".git/ramet").glob("index-*"))


async def test_files_are_restored_with_sparse_and_split_indexes(git: Git, tree: Sample) -> None:
    tree.write("inside/a", "of then\n")
    tree.write("outside/b", "of then\n")
    target = await git.snapshots.take(tree.path)
    tree.commit("then")
    tree.write("inside/a", "of now\n")
    tree.write("outside/b", "of now\n")
    tree.commit("now")
    tree.git("sparse-checkout", "set", "inside")
    tree.git("update-index", "--split-index")

    async def keep(now: str) -> None:
        del now

    await git.snapshots.restore_files(tree.path, target, keep)

    assert (tree.path / "inside/a").read_text() == "of then\n"
    assert not (tree.path / "outside").exists()


async def test_a_branch_with_an_unrecorded_commit_stays(git: Git, sample: Sample, tree: Sample) -> None:
    commit = tree.commit("kept")
    tree.commit("not kept")
    later = tree.head

    assert not (await git.snapshots.move_back(tree.path, sample.head, own="work", tip=commit, leave=True)).done
    assert tree.head == later
    assert (await git.snapshots.move_back(tree.path, sample.head, own="work", tip=later)).done
    assert tree.head == sample.head


async def test_a_required_filter_that_fails_stops_a_rewind_before_anything_is_touched(git: Git, tree: Sample) -> None:
    tree.git("config", "filter.x.clean", "cat")
    tree.git("config", "filter.x.smudge", "cat")
    tree.git("config", "filter.x.required", "true")
    tree.write(".gitattributes", "big filter=x\n")
    tree.write("big", "of then\n")
    target = await git.snapshots.take(tree.path)
    tree.write("big", "of now\n")
    tree.write("later", "1\n")
    tree.write(".gitattributes", "big filter=x\nother filter=x\n")
    tree.git("config", "filter.x.smudge", "echo the key is locked >&2; false")
    before = fingerprint(tree)
    asked: list[str] = []

    async def keep(now: str) -> None:
        asked.append(now)

    with pytest.raises(GitFailedError, match="the key is locked") as refused:
        await git.snapshots.restore_files(tree.path, target, keep)

    assert "big: smudge filter x failed" in refused.value.message
    assert "fatal:" not in refused.value.message
    assert "nothing was changed" in (refused.value.hint or "")
    assert (fingerprint(tree), asked) == (before, [])
    tree.git("config", "filter.x.smudge", "cat")
    await git.snapshots.restore_files(tree.path, target, keep)
    assert (tree.path / "big").read_text() == "of then\n"
