"""A worktree that comes back, and what somebody wrote to it between a kill of the daemon and its next start; marks that only an index has."""

import shutil
from pathlib import Path

import pytest
from rametd.git import Git, Kept, RepositoryInfo

from tests.support.repositories import Sample


async def put_away(git: Git, repo: RepositoryInfo, tree: Sample) -> Kept:
    await git.archive(repo, "s-1", tree.path, "work")
    await git.remove_worktree(repo, tree.path, "work", delete_branch=False)
    kept = await git.kept(repo, "refs/ramet/archive/s-1")
    assert kept is not None
    return kept


async def revive(git: Git, repo: RepositoryInfo, tree: Sample, kept: Kept) -> tuple[str, ...]:
    return await git.revive(repo, tree.path, kept, "work", kept.branch_commit, new_branch=False)


def work(tree: Sample) -> None:
    """Something of everything: committed, staged, changed, untracked, deleted."""
    tree.write("committed", "committed\n")
    tree.commit("own")
    tree.write("staged", "staged\n")
    tree.git("add", "staged")
    tree.write("README.md", "changed\n")
    tree.write("new/untracked", "untracked\n")
    (tree.path / "src/app.py").unlink()


async def test_what_is_written_to_a_tree_that_is_half_back_stays_and_is_told(
    git: Git, repo: RepositoryInfo, tree: Sample
) -> None:
    work(tree)
    status = tree.git("status", "--porcelain")
    kept = await put_away(git, repo, tree)
    await git.create_worktree(repo, tree.path, "work", kept.branch_commit, new_branch=False)
    tree.write("README.md", "theirs, since\n")  # where a change comes back
    tree.write("committed", "theirs, since\n")  # beside it
    tree.write("new", "theirs, since\n")  # where a directory comes back
    tree.write("app.log", "theirs, since\n")  # ignored

    words = " ".join(await revive(git, repo, tree, kept))

    for name in ("README.md", "committed", "new", "app.log"):
        assert (tree.path / name).read_text() == "theirs, since\n", name
    assert "somebody wrote to README.md, committed, new/untracked before all was back" in words
    assert f"git restore --source={kept.commit[:12]} -- PATH" in words
    assert (tree.path / "staged").read_text() == "staged\n"
    assert not (tree.path / "src/app.py").exists()
    tree.git("restore", f"--source={kept.commit[:12]}", "--", "README.md")
    (tree.path / "new").unlink()
    tree.git("restore", f"--source={kept.commit[:12]}", "--", "new/untracked")
    tree.git("checkout", "-q", "--", "committed")
    assert tree.git("status", "--porcelain") == status


async def test_what_is_written_after_all_was_back_stays_when_that_is_done_again(
    git: Git, repo: RepositoryInfo, tree: Sample
) -> None:
    work(tree)
    kept = await put_away(git, repo, tree)
    assert await revive(git, repo, tree, kept) == ()
    assert await revive(git, repo, tree, kept) == ()
    tree.write("new/untracked", "theirs, since\n")
    tree.write("staged", "theirs, since\n")
    tree.git("add", "staged")
    tree.write("staged", "theirs, and again\n")

    words = " ".join(await revive(git, repo, tree, kept))

    assert "somebody wrote to new/untracked, staged before" in words
    assert "somebody staged something before" in words
    assert (tree.path / "new/untracked").read_text() == "theirs, since\n"
    assert (tree.path / "staged").read_text() == "theirs, and again\n"
    assert tree.git("show", ":staged") == "theirs, since"


async def test_a_file_of_which_git_makes_other_content_comes_back_all_the_same(
    git: Git, repo: RepositoryInfo, sample: Sample, tree: Sample
) -> None:
    sample.write(".git/info/attributes", "*.crlf text\n")
    blob = tree.git("hash-object", "-w", "--stdin", "--no-filters", stdin=b"one\r\ntwo\r\n")
    tree.git("update-index", "--add", "--cacheinfo", f"100644,{blob},mess.crlf")
    tree.git("commit", "-qm", "carriage returns")
    tree.git("reset", "-q", "--hard")
    tree.write("mess.crlf", b"one\r\ntwo\r\nthree\r\n")
    kept = await put_away(git, repo, tree)

    assert await revive(git, repo, tree, kept) == ()

    assert (tree.path / "mess.crlf").read_bytes().splitlines() == [b"one", b"two", b"three"]


async def test_another_head_is_not_checked_out_over_what_somebody_wrote(
    git: Git, repo: RepositoryInfo, sample: Sample, tree: Sample
) -> None:
    tree.write("README.md", "of the other\n")
    tree.git("checkout", "-q", "--detach")
    other = tree.commit("other")
    kept = await put_away(git, repo, tree)
    await git.create_worktree(repo, tree.path, "work", kept.branch_commit, new_branch=False)
    tree.write("README.md", "theirs, since\n")

    stays, files = await revive(git, repo, tree, kept)

    assert stays.startswith(f"{other[:12]}, which it had checked out, cannot be")
    assert files.startswith("somebody wrote to README.md")
    assert (tree.path / "README.md").read_text() == "theirs, since\n"
    assert sample.git("rev-parse", "work") == tree.head


async def test_a_half_made_tree_goes_only_where_nobody_was_at_it(
    git: Git, repo: RepositoryInfo, sample: Sample, tree: Sample, tmp_path: Path
) -> None:
    work(tree)
    kept = await put_away(git, repo, tree)
    aside, known = tmp_path / "aside", (kept.branch_commit, kept.commit)

    async def half_made() -> Path | None:
        return await git.set_half_made_aside(repo, tree.path, known, aside, whole=True)

    assert await half_made() is None
    await revive(git, repo, tree, kept)
    assert await half_made() is None
    tree.write("app.log", "ignored, and theirs\n")
    assert await git.set_half_made_aside(repo, tree.path, known, aside, whole=False) is None
    moved = await half_made()
    assert moved is not None
    assert (moved / "app.log").read_text() == "ignored, and theirs\n"
    assert not tree.path.exists()
    assert str(tree.path) not in sample.git("worktree", "list")


async def test_marks_of_an_index_come_back(git: Git, repo: RepositoryInfo, sample: Sample, tree: Sample) -> None:
    sample.write(".git/info/exclude", "hidden\n")
    for name in ("unchanged", "skipped", "both", "gone", 'odd "name\n'):
        tree.write(name, "committed\n")
    tree.commit("own")
    for name in ("unchanged", "both", 'odd "name\n'):
        tree.git("update-index", "--assume-unchanged", name)
    for name in ("skipped", "both", "gone"):
        tree.git("update-index", "--skip-worktree", name)
    for name in ("unchanged", "skipped", "both", 'odd "name\n'):
        tree.write(name, "mine\n")
    tree.write("announced", "new\n")
    tree.write("hidden", "new\n")
    tree.git("add", "-N", "announced")
    tree.git("add", "-N", "--force", "hidden")
    status, marked = tree.git("status", "--porcelain"), tree.git("ls-files", "-v")
    kept = await put_away(git, repo, tree)

    assert await revive(git, repo, tree, kept) == ()

    assert (tree.git("status", "--porcelain"), tree.git("ls-files", "-v")) == (status, marked)
    assert (tree.path / "both").read_text() == "mine\n"
    assert tree.git("diff", "--name-only").splitlines() == ["announced", "hidden"]


async def test_a_mark_on_what_is_not_there_again_is_told(git: Git, repo: RepositoryInfo, tree: Sample) -> None:
    tree.write("announced", "new\n")
    tree.git("add", "-N", "announced")
    kept = await put_away(git, repo, tree)
    await git.create_worktree(repo, tree.path, "work", kept.branch_commit, new_branch=False)
    (tree.path / "announced").mkdir()
    tree.write("announced/theirs")

    words = await revive(git, repo, tree, kept)

    assert any("somebody wrote to announced" in each for each in words)
    assert tree.git("status", "--porcelain") == "?? announced/"


@pytest.mark.parametrize("sparse", ["in", "out"])
async def test_what_a_sparse_checkout_leaves_out_is_no_mark(
    git: Git, repo: RepositoryInfo, sample: Sample, tree: Sample, sparse: str
) -> None:
    for folder in ("in", "out"):
        tree.write(f"{folder}/file")
    tree.commit("own")
    tree.git("sparse-checkout", "set", sparse)

    kept = await put_away(git, repo, tree)

    assert kept.marks == ()


async def test_what_is_written_to_a_repository_inside_that_is_half_back_stays_and_is_told(
    git: Git, repo: RepositoryInfo, tree: Sample, tmp_path: Path
) -> None:
    tree.git("init", "-q", "own")
    for name in ("kept", "deleted", "both"):
        tree.write(f"own/{name}", "committed\n")
    tree.git("add", "-A", at=tree.path / "own")
    tree.git("commit", "-q", "-m", "own", at=tree.path / "own")
    tree.write("own/kept", "kept\n")
    (tree.path / "own" / "deleted").unlink()
    record = await git.archive(repo, "s-1", tree.path, "work")
    await git.keep_git_dirs(record.git_dirs, tmp_path / "apart")
    await git.remove_worktree(repo, tree.path, "work", delete_branch=False)
    kept = await git.kept(repo, record.ref)
    assert kept is not None

    async def back() -> tuple[str, ...]:
        return await git.revive(
            repo, tree.path, kept, "work", kept.branch_commit, new_branch=False, git_dirs=[tmp_path / "apart"]
        )

    assert await back() == ()
    status = tree.git("status", "--porcelain", at=tree.path / "own")
    assert status.split("\n") == [" D deleted", " M kept"]
    assert await back() == ()
    tree.write("own/kept", "theirs, since\n")
    tree.write("own/deleted", "theirs, since\n")
    tree.write("own/new", "theirs, since\n")

    words = " ".join(await back())

    assert "somebody wrote to kept in own before all was back" in words
    for name in ("kept", "deleted", "new"):
        assert (tree.path / "own" / name).read_text() == "theirs, since\n", name
    assert (tree.path / "own" / "both").read_text() == "committed\n"


@pytest.mark.parametrize("newer", [False, True])
async def test_a_commit_on_a_detached_head_comes_back_though_its_directory_was_deleted(
    git: Git, repo: RepositoryInfo, sample: Sample, tree: Sample, newer: bool
) -> None:
    tree.git("checkout", "-q", "--detach")
    tree.write("only", "here\n")
    alone = tree.commit("on no branch")
    tree.write("draft", "kept by a checkpoint\n")
    checkpoint = await git.snapshots.take(tree.path, ref="refs/ramet/checkpoints/s-1/1", owner="s-1")
    if newer:
        alone = tree.commit("newer than the checkpoint")
    shutil.rmtree(tree.path)
    last = (checkpoint.head, checkpoint.id)

    await git.archive(repo, "s-1", tree.path, "work", last)
    await git.remove_worktree(repo, tree.path, "work", delete_branch=False)
    kept = await git.kept(repo, "refs/ramet/archive/s-1")

    assert kept is not None
    assert await revive(git, repo, tree, kept) == ()
    assert (tree.head, tree.git("branch", "--show-current")) == (alone, "")
    assert tree.git("status", "--porcelain") == ("" if newer else "?? draft")
    assert (tree.path / "draft").read_text() == "kept by a checkpoint\n"
    assert sample.git("rev-parse", "work") == sample.head
