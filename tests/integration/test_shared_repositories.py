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
from rametd.git import TRASH, Git
from rametd.git.sharing import temporary
from rametd.services.commands.carry import Given, write_given
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
    async with git.landing.tree(repo, Path(home) / "landing-0123456789", base.commit) as landing:
        await landing.rebase(base.commit, base.commit, {})
    for number in (1, 2):
        spare = Path(home) / f"{name}-spare{number}"
        await git.spares.make(repo, spare, base.commit)
        await asyncio.to_thread(write_given, spare, Given())
        await git.spares.note(repo, spare, base.commit)
        if number == 2:
            await git.spares.claim(repo, spare, f"{name}-claimed", base.commit, new_branch=True)
            shelved = await git.snapshots.record(repo, spare.name, f"{TRASH}{name}", spare, f"{name}-claimed")
            assert not await git.snapshots.shelve(repo, shelved.snapshot, spare)
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


DIAGNOSE = """
import asyncio, os, sys, time
from collections import Counter
from pathlib import Path
from rametd.config import Config
from rametd.config.model import Worktrees
from rametd.services import repos
from rametd.services.upkeep.checks.directories import root_directories
from rametd.services.upkeep.doctor import OF_A_REPOSITORY
from rametd.services.upkeep.orphaned import orphaned
from rametd.services.upkeep.scene import take_scene
from tests.support.core import bare_core
person, group, umask = map(int, sys.argv[4:])
async def main(repository, root, home):
    config = Config(worktrees=Worktrees(root=Path(root)))
    async with bare_core(Path(home), {"PATH": "/usr/bin:/bin", "HOME": home}, time.time, config) as core:
        for path in Path(home).glob("ramet.db*"):
            os.chown(path, person, group)
        os.setgroups([])
        os.setgid(group)
        os.setuid(person)  # only now: the interpreter itself may lie in a directory of root's
        os.umask(umask)
        info = await core.git.discover(Path(repository))
        core.git.trust(info.common_dir)
        known = await core.store.read(lambda reader: repos.known_or_new(core, reader, info))
        repo = await core.store.write(lambda unit: repos.register(unit, known, "owner"))
        scene = await take_scene(core, repo, Counter())
        checks = [check(scene) for check in OF_A_REPOSITORY]
        for check in (*checks, root_directories(core, [repo], [scene], Counter())):
            async for found in check:
                print(found.severity, found.code, Path(found.subject).name, sep="\\t")
        async for item in orphaned(scene):
            assert not item.is_removable
        await core.git.worktrees.list(info)
        print(await core.git.branches.list(info), file=sys.stderr)
asyncio.run(main(*sys.argv[1:4]))
"""


def work(place: Path, person: int, umask: int, name: str) -> None:
    """Run the git layer as that person: create worktrees of each kind, and take snapshots."""
    act(place, person, umask, WORK, place / "repository", name, place / str(person))


def act(place: Path, person: int, umask: int, script: str, *arguments: str | Path) -> str:
    """Run a script as that person; return what it prints."""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(place / str(person)),
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    command = [sys.executable, "-c", script, *map(str, (*arguments, person, GROUP, umask))]
    done = subprocess.run(command, cwd=place, env=environment, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


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


@pytest.mark.parametrize("own", ["", "false"], ids=["unset", "private"])
def test_a_person_shares_all_repositories_that_do_not_say_otherwise(place: Path, own: str) -> None:
    person, repository = PEOPLE[0], place / "repository"
    repository.mkdir()
    os.chown(repository, person, GROUP)
    run(place, person, 0o022, "git", "init", "-q", at=repository)
    run(place, person, 0o022, "git", "commit", "-q", "--allow-empty", "-m", "first", at=repository)
    if own:
        run(place, person, 0o022, "git", "config", "core.sharedRepository", own, at=repository)
    run(
        place,
        person,
        0o022,
        "git",
        "config",
        "--file",
        ".gitconfig",
        "core.sharedRepository",
        "group",
        at=place / str(person),
    )

    work(place, person, 0o022, "one")

    notes = sorted((repository / ".git" / "ramet").rglob("*"))
    assert notes
    assert {bool(file.stat().st_mode & stat.S_IWGRP) for file in notes} == {not own}


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


def test_what_is_in_another_persons_closed_directory_is_left_to_them(place: Path) -> None:
    first, second = PEOPLE
    repository, root = place / "repository", place / "root"
    repository.mkdir()
    root.mkdir()
    root.chmod(0o777)
    os.chown(repository, first, GROUP)
    run(place, first, 0o022, "git", "init", "-q", "-b", "main", "--shared=group", at=repository)
    run(place, first, 0o022, "git", "commit", "-q", "--allow-empty", "-m", "first", at=repository)
    work(place, first, 0o022, "theirs")
    run(
        place, first, 0o022, "git", "worktree", "add", "-q", "-b", "own", str(place / str(first) / "own"), at=repository
    )
    closed = ("git", "worktree", "add", "-q", "-b", "closed", str(place / str(first) / "closed"))
    run(place, first, 0o077, *closed, at=repository)
    (repository / ".git/worktrees/closed").chmod(0o700)
    run(place, first, 0o077, "mkdir", "-p", str(root / "repo-abcdefgh" / "a"))
    (place / str(first)).chmod(0o700)

    work(place, second, 0o022, "mine")  # also with a landing worktree of the same name
    found = act(place, second, 0o022, DIAGNOSE, repository, root, place / str(second))

    lines = [line.split("\t") for line in found.splitlines()]
    assert {code for _, code, name in lines if name == "theirs"} == {"worktree-unknown"}
    assert {name for _, code, name in lines if code == "registration-stale"} == set()
    assert {(severity, code) for severity, code, name in lines if name == "repo-abcdefgh"} == {
        ("info", "directory-unknown")
    }
    assert "own" not in {name for _, _, name in lines}
