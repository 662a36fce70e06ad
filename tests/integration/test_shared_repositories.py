"""`core.sharedRepository`: Ramet's files have the same permissions as git's, and the daemons of two
people work in one repository."""

import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.repositories import CONFIG

WORK = """
import asyncio, concurrent.futures.thread, os, sys
from pathlib import Path
from rametd.git import Git
from rametd.git.sharing import temporary
person, group, umask = map(int, sys.argv[4:])
os.setgroups([])
os.setgid(group)
os.setuid(person)  # only now: the interpreter itself may lie in a directory of root's
os.umask(umask)
async def main(repository, name, home):
    git = Git({"PATH": "/usr/bin:/bin", "HOME": home}, threads=2)
    repo = await git.discover(Path(repository))
    git.trust(repo.common_dir)
    base = await git.branches.resolve_base(repo, "main")
    tree = Path(home) / name
    await git.worktrees.create(repo, tree, name, base.commit, new_branch=True)
    (tree / "new").write_text(name)
    await git.snapshots.take(tree, ref=f"refs/ramet/checkpoints/{name}/1", owner=name)
    tracker = await git.trackers.watch(tree)
    (tree / "src").mkdir(exist_ok=True)
    for number in range(40):
        (tree / f"src/{number}").write_text(f"{name} {number}")
    await git.snapshots.take(tree, ref=f"refs/ramet/checkpoints/{name}/2", owner=name)
    await git.trackers.unwatch(tree)
    await git.aclose()
    temporary(repo.common_dir / "ramet")  # as a daemon that is killed leaves it
asyncio.run(main(*sys.argv[1:4]))
"""
PEOPLE = (45671, 45672)
GROUP = 45670

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as two people")


@pytest.fixture
def place() -> Iterator[Path]:
    """Create a directory that others can enter, with a home for each of two people of one group."""
    made = Path(tempfile.mkdtemp(prefix="ramet-shared-"))
    made.chmod(0o755)
    for person in PEOPLE:
        home = made / str(person)
        home.mkdir()
        (home / ".gitconfig").write_text(f"{CONFIG}[safe]\n    directory = {made}/repository\n")
        (home / "plain").write_text(f"{CONFIG}[safe]\n    directory = *\n")
        os.chown(home, person, GROUP)
    yield made
    shutil.rmtree(made)


def work(place: Path, person: int, umask: int, name: str) -> None:
    """Run the git layer as that person: create a worktree and take a snapshot of it."""
    arguments = (place / "repository", name, place / str(person), person, GROUP, umask)
    environment = {"PATH": os.environ["PATH"], "HOME": str(place / str(person))}
    command = [sys.executable, "-c", WORK, *map(str, arguments)]
    done = subprocess.run(command, cwd=place, env=environment, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()


def run(place: Path, person: int, umask: int, *command: str, at: Path | None = None) -> None:
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(place / str(person)),
        "PYTHONPATH": os.pathsep.join(sys.path),
        "GIT_CONFIG_GLOBAL": str(place / str(person) / "plain"),  # plain git also works in the git directory itself
    }
    # By a program, not by Python's own `user=`, which forks this process, where gRPC's threads may
    # run.
    become = ("setpriv", f"--reuid={person}", f"--regid={GROUP}", "--clear-groups")
    masked = ("sh", "-c", f'umask {umask:o}; exec "$@"', "sh")
    done = subprocess.run(
        [*become, *masked, *command], cwd=at or place, env=environment, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()


@pytest.mark.parametrize(("shared", "umask"), [("group", 0o022), ("group", 0o077), ("all", 0o027), ("0660", 0o022)])
def test_two_people_work_in_one_repository(place: Path, shared: str, umask: int) -> None:
    first, second = PEOPLE
    repository = place / "repository"
    repository.mkdir()
    os.chown(repository, first, GROUP)
    run(place, first, umask, "git", "init", "-q", f"--shared={shared}", at=repository)
    run(place, first, umask, "git", "commit", "-q", "--allow-empty", "-m", "first", at=repository)

    for person in (first, second, first):
        name = f"by-{person}-{len(list((place / str(person)).iterdir()))}"
        work(place, person, umask, name)

    private = [
        file
        for folder in ("objects", "refs", "logs", "ramet", "worktrees")
        for file in sorted((repository / ".git" / folder).rglob("*"))
        if not file.stat().st_mode & stat.S_IRGRP or (file.is_dir() and not file.stat().st_mode & stat.S_IWGRP)
    ]
    assert private == []
    run(place, second, umask, "rm", "-r", *map(str, (repository / ".git/ramet").glob("index-*")))
    run(place, second, umask, "git", "fsck", "--strict", at=repository)
    clone = place / str(second) / "clone"
    run(place, second, umask, "git", "clone", "-q", str(repository), str(clone))
    for number in range(20):
        (clone / f"{number}").write_text(f"pushed {number}")
    run(place, second, umask, "git", "add", "-A", at=clone)
    run(place, second, umask, "git", "commit", "-q", "-m", "pushed", at=clone)
    run(place, second, umask, "git", "push", "-q", "origin", "HEAD:refs/heads/ramet/pushed", at=clone)


def test_a_repository_that_is_not_shared_stays_as_closed_as_the_umask(place: Path) -> None:
    person = PEOPLE[0]
    repository = place / "repository"
    repository.mkdir()
    os.chown(repository, person, GROUP)
    run(place, person, 0o077, "git", "init", "-q", at=repository)
    run(place, person, 0o077, "git", "commit", "-q", "--allow-empty", "-m", "first", at=repository)

    work(place, person, 0o077, "one")

    open_ = [
        each for each in (repository / ".git").rglob("*") if each.lstat().st_mode & 0o077 and not each.is_symlink()
    ]
    assert open_ == []
