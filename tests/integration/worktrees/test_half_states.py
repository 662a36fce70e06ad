"""Every incomplete state that a kill can leave is undone, completed or repeated."""

import asyncio
import os
import shutil
import signal
from pathlib import Path

import pytest
from rametd.git import Git, RepositoryInfo

from tests.support import repositories
from tests.support.eventually import eventually
from tests.support.repositories import Sample
from tests.support.worktrees import create, leftovers

pytestmark = pytest.mark.full


def half_made(kind: str, sample: Sample, path: Path) -> None:
    """Create the state that a kill leaves at a step of the creation of ``path`` with the branch
    `one`."""
    reason = "in use by ramet (rametctl rm removes it)"
    admin = sample.path / ".git" / "worktrees" / path.name
    branch = ("update-ref", "--create-reflog", "-m", f"ramet: made for {path}", "refs/heads/one", "HEAD", "0" * 40)
    add = ("worktree", "add", "-q", "--no-checkout", "--lock", "--reason", reason, str(path), "one")
    match kind:
        case "directory":
            path.mkdir()
        case "entry without anything":
            admin.mkdir(parents=True)
        case "entry that git is initializing":
            admin.mkdir(parents=True)
            (admin / "locked").write_text("initializing")
        case "entry with a path and a directory without .git":
            admin.mkdir(parents=True)
            (admin / "locked").write_text(reason)
            (admin / "gitdir").write_text(f"{path / '.git'}\n")
            path.mkdir()
        case "branch":
            sample.git(*branch)
        case "branch and entry without HEAD":
            sample.git(*branch)
            sample.git(*add)
            (admin / "HEAD").unlink()
        case "entry without a directory":
            sample.git(*branch)
            sample.git(*add)
            shutil.rmtree(path)
        case "no files":
            sample.git(*branch)
            sample.git(*add)
        case "some files":
            sample.git(*branch)
            sample.git(*add)
            sample.write("src/app.py", "print('tw", at=path)
        case "some files and a lock":
            sample.git(*branch)
            sample.git(*add)
            sample.write("src/app.py", "print('tw", at=path)
            (admin / "index.lock").touch()
        case "everything":
            sample.git(*branch)
            sample.git(*add)
            sample.git("reset", "-q", "--hard", at=path)
        case "a removal cut short":
            aside = path.with_name(f".{path.name}.removing-0")
            sample.write("old", at=aside)
            sample.write("HEAD", at=sample.path / ".git" / "ramet" / f"removing-{path.name}-0")
            sample.git(*branch)


KINDS = [
    "directory",
    "entry without anything",
    "entry that git is initializing",
    "entry with a path and a directory without .git",
    "branch",
    "branch and entry without HEAD",
    "entry without a directory",
    "no files",
    "some files",
    "some files and a lock",
    "everything",
    "a removal cut short",
]


@pytest.mark.parametrize("kind", KINDS)
async def test_undoing_a_creation_cut_short_leaves_nothing(
    git: Git, repo: RepositoryInfo, sample: Sample, trees: Path, kind: str
) -> None:
    half_made(kind, sample, trees / "s-1")

    assert (await git.worktrees.undo_create(repo, trees / "s-1", "one", sample.head)).left == ()

    assert leftovers(sample, trees) == []


@pytest.mark.parametrize("kind", KINDS)
async def test_a_creation_cut_short_can_be_done_again(
    git: Git, repo: RepositoryInfo, sample: Sample, trees: Path, kind: str
) -> None:
    half_made(kind, sample, trees / "s-1")

    await create(git, repo, trees / "s-1", "one")

    assert sample.git("status", "--porcelain", at=trees / "s-1") == ""
    assert sorted(leftovers(sample, trees)) == sorted(
        ["refs/heads/one", str(trees / "s-1"), str(sample.path / ".git/worktrees/s-1")]
    )


@pytest.mark.parametrize("kind", KINDS)
async def test_a_removal_completes_whatever_the_state(
    git: Git, repo: RepositoryInfo, sample: Sample, trees: Path, kind: str
) -> None:
    half_made(kind, sample, trees / "s-1")

    assert (await git.worktrees.remove(repo, trees / "s-1", "one", delete_branch=True)).left == ()

    assert leftovers(sample, trees) == []


async def test_repeating_a_finished_creation_keeps_the_work(
    git: Git, repo: RepositoryInfo, sample: Sample, trees: Path
) -> None:
    await create(git, repo, trees / "s-1", "one")
    sample.write("new", at=trees / "s-1")
    sample.write("src/app.py", "work\n", at=trees / "s-1")

    await create(git, repo, trees / "s-1", "one")

    assert sample.git("status", "--porcelain", at=trees / "s-1").split("\n") == [" M src/app.py", "?? new"]


async def test_a_git_killed_in_the_middle_is_undone(
    tmp_path: Path, environment: dict[str, str], git: Git, trees: Path
) -> None:
    sample = repositories.plain(tmp_path / "slow", environment)
    started = tmp_path / "started"
    sample.write(".gitattributes", "*.py filter=slow\n")
    sample.commit()
    sample.git("config", "filter.slow.smudge", f"touch {started}; exec sleep 600")
    half_made("no files", sample, trees / "s-1")
    process = await asyncio.create_subprocess_exec(
        *("git", "reset", "--hard"),
        cwd=trees / "s-1",
        env=environment,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )
    await eventually(started.exists)
    os.killpg(process.pid, signal.SIGKILL)
    await process.wait()

    await git.worktrees.undo_create(await git.discover(sample.path), trees / "s-1", "one", sample.head)

    assert leftovers(sample, trees) == []
