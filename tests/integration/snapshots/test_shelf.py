"""Worktrees that are archived and restored: moved to the shelf with their git directory, thinned,
filled and moved back."""

import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rametd.domain.errors import GitFailedError, PathTakenError
from rametd.git import ARCHIVE, COMMITS, Git, RepositoryInfo, Snapshot
from rametd.git.snapshots import shelf

from tests.support.repositories import Sample

pytestmark = pytest.mark.full

REF = f"{ARCHIVE}s-1"


def nothing(tree: Sample) -> None:
    del tree


def edits(tree: Sample) -> None:
    tree.write("src/app.py", "changed\n")
    tree.write("new/untracked", "1\n")
    (tree.path / "README.md").unlink()


def staged(tree: Sample) -> None:
    tree.write("src/app.py", "staged\n")
    tree.write("added", "only staged\n")
    tree.git("add", "-A")
    tree.write("src/app.py", "and changed since\n")
    (tree.path / "added").unlink()


def flags(tree: Sample) -> None:
    tree.write("b", "b\n")
    tree.write("deleted", "1\n")
    tree.commit("b")
    tree.git("update-index", "--skip-worktree", "src/app.py")
    tree.git("update-index", "--assume-unchanged", "b", "deleted")
    (tree.path / "deleted").unlink()
    tree.write("src/app.py", "hidden\n")
    tree.write("b", "hidden too\n")
    tree.write("intended", "x\n")
    tree.git("add", "-N", "intended")


def merge(tree: Sample) -> None:
    tree.write("src/app.py", "ours\n")
    tree.commit("ours")
    tree.git("branch", "theirs", "HEAD~1")
    tree.git("worktree", "add", "-q", "../other", "theirs")
    other = Sample(tree.path.parent / "other", tree.environment)
    other.write("src/app.py", "theirs\n")
    other.commit("theirs")
    tree.git("worktree", "remove", "../other")
    with pytest.raises(AssertionError):
        tree.git("merge", "theirs")
    tree.git("branch", "-D", "theirs")


def rebase(tree: Sample) -> None:
    tree.write("src/app.py", "mine\n")
    tree.commit("mine")
    tree.write("draft", "draft\n")
    tree.git("add", "draft")
    with pytest.raises(AssertionError):
        tree.git("rebase", "--autostash", "-x", "false", "HEAD~1")


def detached(tree: Sample) -> None:
    tree.git("checkout", "-q", "--detach")
    tree.write("lonely", "1\n")
    tree.commit("on no branch")


def amended(tree: Sample) -> None:
    tree.write("one", "1\n")
    tree.commit("one")
    tree.git("commit", "-q", "--amend", "-m", "amended")


def own_refs(tree: Sample) -> None:
    tree.git("update-ref", "refs/worktree/mine", tree.git("commit-tree", "HEAD^{tree}", "-m", "held by refs/worktree"))


def another_branch(tree: Sample) -> None:
    tree.git("checkout", "-q", "-b", "side")
    tree.write("side", "1\n")
    tree.commit("side")


def odd_files(tree: Sample) -> None:
    (tree.path / "empty" / "deep").mkdir(parents=True)
    tree.write("with\nnewline", "1\n")
    tree.write("secret", "1\n").chmod(0)
    tree.write("closed/file", "1\n")
    (tree.path / "closed").chmod(0)
    tree.write("run.sh", "#!/bin/sh\n").chmod(0o755)
    tree.git("add", "run.sh")
    (tree.path / "link").symlink_to("nowhere")
    tree.write("private", "tracked\n").chmod(0o600)
    tree.git("add", "private", "link")


def line_ends(tree: Sample) -> None:
    tree.write(".gitattributes", "*.txt text eol=crlf\n*.up filter=up\n")
    tree.git("config", "filter.up.clean", "tr a-z A-Z")
    tree.git("config", "filter.up.smudge", "tr A-Z a-z")
    tree.write("crlf.txt", "a\r\nb\r\n")
    tree.write("lf.txt", "a\nb\n")
    tree.write("x.up", "abc\n")
    tree.commit("converted")
    tree.write("lf.txt", "a\nb\n")


def repository_inside(tree: Sample) -> None:
    tree.git("init", "-q", "nested")
    inner = Sample(tree.path / "nested", tree.environment)
    inner.write("a", "1\n")
    inner.commit("a")
    inner.write("a", "2\n")
    inner.git("stash")
    inner.write("b", "3\n")
    inner.git("checkout", "-q", "-b", "own")


def worktree_inside(tree: Sample) -> None:
    tree.git("worktree", "add", "-q", "-b", "within", "within")
    inner = Sample(tree.path / "within", tree.environment)
    inner.git("checkout", "-q", "--detach")
    inner.write("c", "1\n")
    inner.commit("c")
    inner.write("d", "2\n")
    inner.write("e", "only staged\n")
    inner.git("add", "e")
    (inner.path / "e").unlink()


STATES: list[Callable[[Sample], None]] = [
    nothing, edits, staged, flags, merge, rebase, detached, amended, own_refs, another_branch, odd_files, line_ends,
    repository_inside, worktree_inside,
]  # fmt: skip


def picture(tree: Sample) -> dict[str, object]:
    """Return git's whole state of a worktree, and all files that are not ignored, byte for byte."""
    status = tree.git("status", "--porcelain=v2", "--branch", "--ignore-submodules=none", "--untracked-files=all")
    index = tree.git("ls-files", "-s", "-v")
    files: dict[str, object] = {}
    for place in sorted(tree.path.rglob("*")):
        name = str(place.relative_to(tree.path))
        if name.split("/", maxsplit=1)[0] == ".git" or "/.git/" in f"/{name}" or name.endswith("/.git"):
            continue
        mode = place.lstat().st_mode
        readable = stat.S_ISREG(mode) and mode & 0o400
        files[name] = (oct(mode), place.read_bytes() if readable else place.is_symlink() and place.readlink())
    commits = tree.git("reflog", "--format=%H")
    for commit in commits.split():
        tree.git("cat-file", "-e", commit)
    extra = tree.git("for-each-ref", "refs/worktree")
    return {"status": status, "index": index, "files": files, "reflog": commits, "refs": extra}


def open_up(folder: Path) -> None:
    for place in folder.rglob("*"):
        if not place.is_symlink() and place.is_dir():
            place.chmod(0o700)


async def archived(git: Git, repo: RepositoryInfo, tree: Sample, last: Snapshot | None = None) -> Snapshot:
    snapshot = (await git.snapshots.record(repo, "s-1", REF, tree.path, "work", last)).snapshot
    assert await git.snapshots.shelve(repo, snapshot, tree.path) == ()
    return snapshot


async def restored(git: Git, repo: RepositoryInfo, tree: Sample, snapshot: Snapshot) -> tuple[str, ...]:
    tip = str(snapshot.facts["branch"])
    return await git.snapshots.unshelve(repo, snapshot, tree.path, "work", "work", tip, new_branch=False)


@pytest.mark.parametrize("state", STATES, ids=lambda each: each.__name__)
async def test_an_archived_worktree_is_restored_exactly(
    git: Git, repo: RepositoryInfo, sample: Sample, tree: Sample, state: Callable[[Sample], None]
) -> None:
    state(tree)
    before = picture(tree)

    snapshot = await archived(git, repo, tree)

    assert not tree.path.exists()
    assert not sample.git("worktree", "list", "--porcelain").count("s-1")
    sample.git("worktree", "prune")
    sample.git("reflog", "expire", "--expire=now", "--all")
    sample.git("gc", "-q", "--prune=now")
    assert await restored(git, repo, tree, snapshot) == ()
    assert picture(tree) == before
    tree.git("fsck", "--connectivity-only")
    if state is worktree_inside:
        assert tree.git("show", ":e", at=tree.path / "within") == "only staged"
    open_up(tree.path)


@pytest.mark.parametrize("name", ["HEAD", "commondir", "gitdir"])
async def test_a_file_of_a_shelved_git_directory_without_content_is_written_again(
    git: Git, repo: RepositoryInfo, tree: Sample, name: str
) -> None:
    """A loss of power leaves such a file."""
    staged(tree)
    before = picture(tree)
    snapshot = await archived(git, repo, tree)
    (repo.common_dir / "ramet" / "shelved-s-1" / name).write_text("")
    assert await restored(git, repo, tree, snapshot) == ()
    assert picture(tree) == before


class CutError(Exception):
    """A kill between opening a file and writing to it."""


@pytest.mark.parametrize("state", [staged, rebase], ids=lambda each: each.__name__)
async def test_a_restore_cut_off_in_the_middle_of_any_write_is_completed(
    git: Git, repo: RepositoryInfo, tree: Sample, monkeypatch: pytest.MonkeyPatch, state: Callable[[Sample], None]
) -> None:
    state(tree)
    before, write = picture(tree), Path.write_text
    cuts, done = 0, False
    while not done:
        snapshot = await archived(git, repo, tree)
        left = cuts

        def cut(file: Path, text: str, *arguments: Any, **keywords: Any) -> int:
            nonlocal left
            left -= 1
            if left == -1:
                file.open("w").close()
                raise CutError
            return write(file, text, *arguments, **keywords)

        with monkeypatch.context() as patched:
            patched.setattr(Path, "write_text", cut)
            try:
                await restored(git, repo, tree, snapshot)
                done = True
            except CutError:
                cuts += 1
        assert await restored(git, repo, tree, snapshot) == ()
        assert picture(tree) == before
    assert cuts


@pytest.mark.parametrize("then", ["restored", "undone", "dropped"])
async def test_nothing_stays_beside_the_tree_after_a_restore_that_is_killed(
    git: Git, repo: RepositoryInfo, tree: Sample, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    """The kill comes once the files are in the tree, and before their directory is deleted."""
    before = picture(tree)
    snapshot = await archived(git, repo, tree)

    def die(folder: Path) -> None:
        if folder.exists():
            raise CutError

    with monkeypatch.context() as patched:
        patched.setattr(shelf, "delete_tree", die)
        with pytest.raises(CutError):
            await restored(git, repo, tree, snapshot)
    assert len(list(tree.path.parent.iterdir())) == 2

    if then == "restored":
        assert await restored(git, repo, tree, snapshot) == ()
        assert picture(tree) == before
    elif then == "undone":
        await git.snapshots.undo_unshelve(repo, tree.path, "work", None)
    else:
        await git.snapshots.drop_shelved(repo, tree.path)
    kept = {"restored": ["s-1"], "undone": [".s-1.shelved"], "dropped": []}
    assert [place.name for place in tree.path.parent.iterdir()] == kept[then]


async def test_a_restore_whose_git_dies_in_the_middle_of_a_file_is_completed(
    environment: dict[str, str], git: Git, repo: RepositoryInfo, tree: Sample, tmp_path: Path
) -> None:
    """So it does on a full disk."""
    tree.write("folder/large", os.urandom(30_000))
    tree.commit("large")
    before = picture(tree)
    snapshot = await archived(git, repo, tree)
    wrapper = tmp_path / "bin" / "git"
    wrapper.parent.mkdir()
    wrapper.write_text(f'#!/bin/sh\nulimit -f 8\nexec {shutil.which("git")} "$@"\n')
    wrapper.chmod(0o755)
    limited = Git({**environment, "PATH": f"{wrapper.parent}:{environment['PATH']}"}, threads=1)

    with pytest.raises(GitFailedError):
        await restored(limited, repo, tree, snapshot)
    await limited.aclose()
    assert await restored(git, repo, tree, snapshot) == ()

    assert picture(tree) == before
    assert sorted(place.name for place in tree.path.parent.iterdir()) == ["s-1"]


async def test_what_git_can_make_again_takes_no_room(
    git: Git, repo: RepositoryInfo, tree: Sample, tmp_path: Path
) -> None:
    tree.write("mine", "1\n")
    tree.write("out.log", "ignored\n")
    tree.write("src/deep.log", "ignored\n")
    tree.write(".git-ignored.log/x", "not ignored: a directory\n")
    tree.write("src/app.py", "edited\n")

    await archived(git, repo, tree)

    shelf = tmp_path / "trees" / ".s-1.shelved"
    left = sorted(str(place.relative_to(shelf)) for place in shelf.rglob("*") if place.is_file())
    assert left == [".git", "mine", "src/app.py"]


@pytest.mark.parametrize("gone", ["tree", "entry", "both", "tree before", "tree and entry before"])
async def test_a_deleted_worktree_is_restored_from_its_snapshot(
    git: Git, repo: RepositoryInfo, sample: Sample, tree: Sample, tmp_path: Path, gone: str
) -> None:
    staged(tree)
    tree.write("mine", "1\n")
    last = await git.snapshots.take(tree.path, ref="refs/ramet/checkpoints/s-1/1", owner="s-1")
    before = picture(tree)
    entry = repo.common_dir / "worktrees" / "s-1"
    if "before" in gone:
        shutil.rmtree(tree.path)
        if "entry" in gone:
            shutil.rmtree(entry)
    snapshot = await archived(git, repo, tree, last)
    if gone in {"tree", "both"}:
        shutil.rmtree(tmp_path / "trees" / ".s-1.shelved")
    if gone in {"entry", "both"}:
        shutil.rmtree(repo.common_dir / "ramet" / "shelved-s-1")

    await restored(git, repo, tree, snapshot)

    after = picture(tree)
    assert after["files"] == before["files"]
    # A checkpoint at the end of a turn has only the files.
    if gone != "tree and entry before":
        assert after["index"] == before["index"]
        assert after["status"] == before["status"]


async def test_a_restore_beside_a_moved_branch_creates_another_one(
    git: Git, repo: RepositoryInfo, sample: Sample, tree: Sample
) -> None:
    edits(tree)
    before = picture(tree)
    snapshot = await archived(git, repo, tree)
    sample.git("branch", "-f", "work", "HEAD~1")
    tip = str(snapshot.facts["branch"])

    await git.snapshots.unshelve(repo, snapshot, tree.path, "work", "work-restored", tip, new_branch=True)

    assert tree.git("rev-parse", "--abbrev-ref", "HEAD") == "work-restored"
    assert picture(tree)["files"] == before["files"]


async def test_clean_files_follow_a_moved_branch(
    git: Git, repo: RepositoryInfo, sample: Sample, tree: Sample, tmp_path: Path
) -> None:
    snapshot = await archived(git, repo, tree)
    sample.git("worktree", "add", "-q", str(tmp_path / "elsewhere"), "work")
    elsewhere = Sample(tmp_path / "elsewhere", tree.environment)
    elsewhere.write("later", "1\n")
    (elsewhere.path / "README.md").unlink()
    now = elsewhere.commit("later")
    sample.git("worktree", "remove", str(elsewhere.path))

    await git.snapshots.unshelve(repo, snapshot, tree.path, "work", "work", now, new_branch=False)

    assert tree.git("status", "--porcelain") == ""
    assert (tree.path / "later").exists()
    assert not (tree.path / "README.md").exists()


async def test_a_taken_place_is_refused_before_anything_is_touched(
    git: Git, repo: RepositoryInfo, tree: Sample
) -> None:
    edits(tree)
    snapshot = await archived(git, repo, tree)
    tree.path.mkdir()
    (tree.path / "foreign").write_text("mine\n")

    with pytest.raises(PathTakenError):
        await restored(git, repo, tree, snapshot)

    assert [each.name for each in tree.path.iterdir()] == ["foreign"]
    shutil.rmtree(tree.path)
    assert await restored(git, repo, tree, snapshot) == ()


@pytest.mark.parametrize("trap", ["a link to a file", "a link to a directory", "a repository"])
async def test_a_changed_shelf_is_refused_or_restored_and_leads_nowhere(
    git: Git, repo: RepositoryInfo, tree: Sample, tmp_path: Path, trap: str
) -> None:
    edits(tree)
    snapshot = await archived(git, repo, tree)
    shelf, precious = tmp_path / "trees/.s-1.shelved", tmp_path / "own/file"
    precious.parent.mkdir()
    precious.write_text("precious\n")
    if trap == "a link to a directory":
        shelf.rename(tmp_path / "aside")
        shelf.symlink_to(precious.parent)
    else:
        (shelf / ".git").unlink()
        (shelf / ".git").symlink_to(precious) if trap == "a link to a file" else (shelf / ".git").mkdir()
    if trap != "a link to a file":
        with pytest.raises(PathTakenError):
            await restored(git, repo, tree, snapshot)
        shelf.unlink() if shelf.is_symlink() else (shelf / ".git").rmdir()
    assert await restored(git, repo, tree, snapshot) == ()
    assert (tree.path / "new/untracked").read_text() == "1\n"
    assert [each.read_text() for each in precious.parent.iterdir()] == ["precious\n"]


async def test_a_restore_that_fails_leaves_the_worktree_on_the_shelf(
    git: Git, repo: RepositoryInfo, sample: Sample, tree: Sample, tmp_path: Path
) -> None:
    edits(tree)
    before = picture(tree)
    snapshot = await archived(git, repo, tree)
    lost = tree.git("rev-parse", f"{snapshot.files}:.gitignore", at=sample.path)
    sample.git("gc", "-q")
    for pack in (repo.common_dir / "objects/pack").glob("*.pack"):
        pack.rename(tmp_path / pack.name)

    with pytest.raises(GitFailedError):
        await restored(git, repo, tree, snapshot)

    assert not tree.path.exists()
    for pack in tmp_path.glob("*.pack"):
        pack.rename(repo.common_dir / "objects/pack" / pack.name)
    sample.git("cat-file", "-e", lost)
    assert await restored(git, repo, tree, snapshot) == ()
    assert picture(tree) == before


async def test_a_restore_can_be_undone_and_done_again(git: Git, repo: RepositoryInfo, tree: Sample) -> None:
    edits(tree)
    snapshot = await archived(git, repo, tree)
    await restored(git, repo, tree, snapshot)
    tree.write("since", "written meanwhile\n")
    before = picture(tree)

    await git.snapshots.undo_unshelve(repo, tree.path, "work", None)

    assert not tree.path.exists()
    await restored(git, repo, tree, snapshot)
    assert picture(tree) == before


async def test_no_commit_of_ours_shows_in_a_graph(git: Git, repo: RepositoryInfo, sample: Sample, tree: Sample) -> None:
    for number in range(3):
        tree.write("work", f"{number}\n")
        await git.snapshots.take(tree.path, ref=f"refs/ramet/checkpoints/s-1/{number}", owner="s-1")
    graph = sample.git("log", "--all", "--format=%H").split()

    await archived(git, repo, tree)

    assert (
        sample.git("log", "--all", "--format=%H").split() == graph == sample.git("log", "main", "--format=%H").split()
    )


async def test_each_line_of_commits_has_one_ref(git: Git, repo: RepositoryInfo, sample: Sample, tree: Sample) -> None:
    async def checkpoint(number: int) -> None:
        await git.snapshots.take(tree.path, ref=f"refs/ramet/checkpoints/s-1/{number}", owner="s-1")

    for number in range(3):
        tree.write("work", f"{number}\n")
        left = tree.commit(f"{number}")
        await checkpoint(number)
    tree.git("commit", "-q", "--amend", "-m", "another")
    await checkpoint(3)

    refs = dict(
        line.split()[::-1]
        for line in sample.git("for-each-ref", "--format=%(objectname) %(refname)", COMMITS).splitlines()
    )
    assert refs == {f"{COMMITS}s-1/head": tree.head, f"{COMMITS}s-1/{left}": left}
