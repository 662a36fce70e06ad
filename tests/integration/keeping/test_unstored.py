"""What git cannot store, and what it does not look at: everything else is kept as usual, and these come back or are named."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from rametd.git import Git, Kept, RepositoryInfo
from rametd.git.aside import put_back

from tests.support import repositories
from tests.support.repositories import Sample


def broken_filter(sample: Sample, pattern: str, command: str = "false") -> None:
    """A required filter that fails, for what fits the pattern."""
    sample.git("config", "filter.broken.clean", command)
    sample.git("config", "filter.broken.smudge", "cat")
    sample.git("config", "filter.broken.required", "true")
    (sample.path / ".git" / "info").mkdir(exist_ok=True)
    (sample.path / ".git" / "info" / "attributes").write_text(f"{pattern} filter=broken\n")


async def away_and_back(
    git: Git, repo: RepositoryInfo, tree: Sample, meanwhile: Callable[[Path], object] = lambda folder: None
) -> tuple[Kept, tuple[str, ...], list[str]]:
    """Through the trash and a directory aside: what was kept, what coming back tells, what was in the directory."""
    record = await git.trash(repo, "s-1", tree.path, "work")
    aside = tree.path.parent / "aside" / "tree" if record.unread else None
    apart = tree.path.parent / "aside" / "git-0"
    await git.keep_git_dirs(record.git_dirs, apart)
    removal = await git.remove_worktree(repo, tree.path, "work", delete_branch=False, keep_at=aside)
    folders = [removal.aside] if removal.aside is not None else []
    for folder in folders:
        await git.thin_out(folder, record.aside)
        meanwhile(folder)
    stored = [str(path.relative_to(folder)) for folder in folders for path in folder.rglob("*") if not path.is_dir()]
    kept = await git.kept(repo, record.ref)
    assert kept is not None
    back = await git.revive(
        repo, tree.path, kept, "work", kept.branch_commit, new_branch=False, aside=folders, git_dirs=[apart]
    )
    return kept, back, sorted(stored)


@pytest.mark.parametrize("encoding", [False, True])
async def test_a_file_that_git_refuses_to_store_is_named_and_everything_else_is_kept_as_usual(
    git: Git, repo: RepositoryInfo, sample: Sample, tree: Sample, encoding: bool
) -> None:
    broken_filter(sample, "*.secret")
    if encoding:
        (sample.path / ".git" / "info" / "attributes").write_text("*.secret text working-tree-encoding=UTF-16\n")
    tree.write("deep/new.secret", b"only\xd8here")
    tree.write("other")
    tree.write("src/app.py", "changed\n")

    (words,) = await git.unstored(repo, tree.path)
    kept, back, stored = await away_and_back(git, repo, tree)

    assert "deep/new.secret" in words
    assert kept.changed == ("other", "src/app.py")
    assert (back, stored) == ((), ["deep/new.secret"])
    assert (tree.path / "deep" / "new.secret").read_bytes() == b"only\xd8here"
    assert tree.git("status", "--porcelain").splitlines() == [" M src/app.py", "?? deep/", "?? other"]


async def test_a_tracked_file_whose_filter_fails_comes_back_in_its_newest_version_however_often_that_begins(
    git: Git, repo: RepositoryInfo, sample: Sample, tree: Sample
) -> None:
    tree.write("a.secret", "stored\n")
    tree.commit()
    broken_filter(sample, "*.secret")
    tree.write("a.secret", "newest\n")
    os.utime(tree.path / "a.secret", (1, 1))

    assert (await git.work_at_risk(repo, tree.path, "work", None)).uncommitted == ("a.secret",)
    kept, back, _ = await away_and_back(git, repo, tree)
    folders = list((tree.path.parent / "aside").iterdir())
    again = await git.revive(repo, tree.path, kept, "work", kept.branch_commit, new_branch=False, aside=folders)

    assert (back, again) == ((), ())
    assert (tree.path / "a.secret").read_text() == "newest\n"


async def test_a_filter_that_fails_for_all_its_files_is_not_asked_for_each(
    git: Git, repo: RepositoryInfo, sample: Sample, tree: Sample, tmp_path: Path
) -> None:
    asked = tmp_path / "asked"
    broken_filter(sample, "*.secret", f"echo x >> {asked}; false")
    for number in range(40):
        tree.write(f"{number}.secret")

    taken = await git.snapshots.take(tree.path)

    assert len(taken.skipped) == 40
    assert len(asked.read_text().splitlines()) < 20


async def test_a_filter_that_fails_for_one_of_its_files_keeps_the_others(
    git: Git, sample: Sample, tree: Sample
) -> None:
    broken_filter(sample, "*.secret", "grep -v forbidden")
    tree.write("a.secret", "allowed\n")
    tree.write("b.secret", "forbidden\n")

    taken = await git.snapshots.take(tree.path)

    assert taken.skipped == ("b.secret: clean filter 'broken' failed",)
    assert tree.git("show", f"{taken.files}:a.secret") == "allowed"


async def test_a_repository_inside_that_holds_more_than_its_files_comes_back_whole(
    git: Git, repo: RepositoryInfo, tree: Sample
) -> None:
    own = repositories.unborn(tree.path / "own", tree.environment)
    own.write("first")
    own.commit("first")
    own.git("switch", "-qc", "other")
    other = own.commit("other")
    own.git("switch", "-q", "main")
    own.write("uncommitted")

    _, back, _ = await away_and_back(git, repo, tree)

    assert back == ()
    assert own.git("rev-parse", "other") == other
    assert own.git("status", "--porcelain", "--branch").splitlines() == ["## main", "?? uncommitted"]


async def test_what_cannot_be_put_back_stays_aside_and_is_named(
    git: Git, repo: RepositoryInfo, sample: Sample, tree: Sample
) -> None:
    broken_filter(sample, "*.secret")
    tree.write("deep/a.secret", "mine\n")
    tree.write("deep/file", "as it was\n")

    def meddle(folder: Path) -> None:
        (folder / "deep" / "file").write_text("another\n")

    _, (words,), _ = await away_and_back(git, repo, tree, meddle)

    assert "aside/tree-0: deep/file: another version is there" in words
    assert (tree.path / "deep" / "a.secret").read_text() == "mine\n"
    assert (tree.path / "deep" / "file").read_text() == "as it was\n"
    assert (tree.path.parent / "aside" / "tree-0" / "deep" / "a.secret").exists()


def test_a_copy_back_that_a_kill_cuts_short_leaves_nothing_in_the_worktree_and_is_made_again(tmp_path: Path) -> None:
    folder, tree = tmp_path / "tree-0", tmp_path / "tree"
    (folder / "deep").mkdir(parents=True)
    tree.mkdir()
    big = b"only here\n" * 10_000
    (folder / "deep" / "big").write_bytes(big)
    program = (
        "import resource, signal, sys; from pathlib import Path; from rametd.git.aside import put_back\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_DFL); resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "put_back(*map(Path, sys.argv[1:]))"
    )

    done = subprocess.run([sys.executable, "-c", program, folder, tree], check=False)

    assert done.returncode == -signal.SIGXFSZ
    assert [path.name for path in tree.rglob("*")] == ["deep"]
    assert put_back(folder, tree) == []
    assert (tree / "deep" / "big").read_bytes() == big
    assert {path.name for path in tmp_path.rglob("*")} == {"tree-0", "tree", "deep", "big"}


def test_of_a_directory_that_is_whole_what_a_commit_stands_in_for_is_replaced(tmp_path: Path) -> None:
    folder, tree = tmp_path / "tree-0", tmp_path / "tree"
    for place, text in ((folder, "as it was\n"), (tree, "standing in\n")):
        place.mkdir()
        (place / "file").write_text(text)
    (folder / "file").chmod(0o755)

    assert put_back(folder, tree, instead=True) == ["file: another version is there"]
    (folder / ".git").touch()
    assert put_back(folder, tree) == ["file: another version is there"]
    assert put_back(folder, tree, instead=True) == []
    assert (tree / "file").read_text() == "as it was\n"
    assert (tree / "file").stat().st_mode & 0o777 == 0o755
    assert not (tree / ".git").exists()


async def test_a_directory_is_kept_whole_where_git_named_something_that_is_not_there(git: Git, tmp_path: Path) -> None:
    folder = tmp_path / "tree-0"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "file").touch()

    await git.thin_out(folder, ("deep/file", "gone"))
    await git.thin_out(folder, ())
    assert (folder / "deep" / "file").exists()
    await git.thin_out(folder, ("deep",))
    assert (folder / "deep" / "file").exists()


async def test_directories_without_files_come_back_and_ignored_ones_do_not(
    git: Git, repo: RepositoryInfo, tree: Sample
) -> None:
    for place in ("empty", "new/deep/empty", 'src/odd \n"ü', os.fsdecode(b"\xff"), "x.log", "build.log/inner"):
        (tree.path / place).mkdir(parents=True)
    tree.write("new/file")

    kept, back, _ = await away_and_back(git, repo, tree)

    found = {path.relative_to(tree.path).as_posix() for path in tree.path.rglob("*") if path.is_dir()}
    assert set(kept.empty) == {"empty", "new/deep/empty", 'src/odd \n"ü', os.fsdecode(b"\xff")}
    assert found == {*kept.empty, "src", "new", "new/deep"}
    assert back == ()


async def test_a_directory_that_became_empty_since_is_kept_too(git: Git, repo: RepositoryInfo, tree: Sample) -> None:
    await git.trash(repo, "s-1", tree.path, "work")
    (tree.path / "empty").mkdir()

    kept, _, _ = await away_and_back(git, repo, tree)

    assert kept.empty == ("empty",)


async def test_pipes_and_sockets_are_named_when_they_go(git: Git, repo: RepositoryInfo, tree: Sample) -> None:
    os.mkfifo(tree.path / "src" / "pipe")
    os.mkfifo(tree.path / "ignored.log")
    (tree.path / "run").mkdir()
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(f"/proc/self/fd/{(folder := os.open(tree.path / 'run', os.O_RDONLY))}/s")
        os.close(folder)

    record = await git.trash(repo, "s-1", tree.path, "work")

    assert record.unread == ()
    assert record.skipped == ("no commit can hold these, and they go for good: run/s (socket), src/pipe (named pipe)",)


async def test_a_name_that_came_by_now_is_in_nobodys_way(
    git: Git, repo: RepositoryInfo, sample: Sample, tree: Sample, tmp_path: Path
) -> None:
    """Where the branch went on, a file or a link may be where an empty directory was."""
    (tree.path / "a" / "empty").mkdir(parents=True)
    (tree.path / "b" / "empty").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    record = await git.trash(repo, "s-1", tree.path, "work")
    kept = await git.kept(repo, record.ref)
    assert kept is not None
    (tree.path / "a" / "empty").rmdir()
    (tree.path / "a").rmdir()
    tree.write("a", "a file\n")
    (tree.path / "b" / "empty").rmdir()
    (tree.path / "b").rmdir()
    (tree.path / "b").symlink_to(tmp_path / "outside")
    tip = tree.commit("went on")
    await git.remove_worktree(repo, tree.path, "work", delete_branch=False)

    await git.revive(repo, tree.path, kept, "work", tip, new_branch=False)

    assert (tree.path / "a").read_text() == "a file\n"
    assert list((tmp_path / "outside").iterdir()) == []


async def test_a_file_that_is_named_like_a_copy_in_the_making_is_left_alone(
    git: Git, repo: RepositoryInfo, sample: Sample, tree: Sample
) -> None:
    broken_filter(sample, "*.secret")
    tree.write("a.secret", "mine\n")
    tree.write(".a.secret.part", "a person's\n")

    _, back, _ = await away_and_back(git, repo, tree)

    assert back == ()
    assert (tree.path / ".a.secret.part").read_text() == "a person's\n"
    assert [path.name for path in tree.path.glob("*.part")] == [".a.secret.part"]
