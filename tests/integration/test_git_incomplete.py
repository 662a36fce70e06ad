"""Checkouts that git leaves incomplete, by sync and by landing: everything that git has written is
taken back, and only that."""

import shlex
import shutil
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from rametd.domain.errors import CheckoutIncompleteError, GitBusyError, GitFailedError, RametError, WorktreeChangedError
from rametd.git import CutOff, Git, RepositoryInfo
from rametd.git.targets import Checkout

from tests.support.closed import unprivileged_git
from tests.support.repositories import Sample

OLD = {
    "a": "old\n", "b": "old\n", "closed/x": "old\n", "gone": "old\n", "z": "old\n", "longer": "old\n",
    "flat": "old\n", "folder/one": "old\n", 'name with\n"line"': "old\n", "mode": "old\n",
}  # fmt: skip
NEW = {
    "a": "new\n", "b": "\0" * 30_000, "closed/x": "new\n", "closed/new": "new\n", "z": "new\n", "longer": "old\nnew\n",
    "flat/one": "new\n", "folder": "new\n", 'name with\n"line"': "new\n", "mode": "old\n",
    "new/below/0": "\0" * 30_000, "new/1": "new\n",
}  # fmt: skip


@dataclass
class Place:
    """A checkout at the old commit, with files of its own; ``new`` is to come."""

    sample: Sample
    branch: str
    old: str
    new: str
    folder: Path
    git_dir: Path
    before: object = None
    mends: list[Callable[[], object]] = field(default_factory=list)

    @property
    def state(self) -> object:
        files = {
            str(path.relative_to(self.sample.path)): (
                path.lstat().st_mode,
                path.read_bytes() if path.is_file() else b"",
            )
            for path in self.sample.path.rglob("*")
            if ".git" not in path.parts
        }
        lines = (("rev-parse", "HEAD"), ("branch", "--show-current"), ("ls-files", "-s"), ("status", "--porcelain"))
        return files, [self.sample.git(*words) for words in lines]


def lay_out(sample: Sample, files: dict[str, str]) -> str:
    sample.git("rm", "-rqf", "--ignore-unmatch", ".")
    for name, content in files.items():
        sample.write(name, content)
    return sample.commit()


@pytest.fixture
def place(sample: Sample, repo: RepositoryInfo, tree: Sample, tmp_path: Path, request: pytest.FixtureRequest) -> Place:
    """The person's checkout, or a session's worktree."""
    where = tree if getattr(request, "param", "sync") == "sync" else sample
    branch = where.git("branch", "--show-current")
    old = lay_out(where, OLD)
    where.git("checkout", "-q", "--detach")
    lay_out(where, NEW)
    (where.path / "mode").chmod(0o755)
    where.git("commit", "-qa", "--amend", "--no-edit")
    new = where.head
    where.git("checkout", "-q", branch)
    where.write("untracked", "mine\n")
    where.write("own", "mine\n")
    (where.path / "empty").mkdir()
    where.git("add", "own")
    folder = tmp_path / "bin"
    folder.mkdir()
    git_dir = Path(where.git("rev-parse", "--absolute-git-dir"))
    made = Place(where, branch, old, new, folder, git_dir)
    made.before = made.state
    return made


def full_disk(place: Place) -> str:
    wrapper = place.folder / "git"
    wrapper.write_text(f"#!/bin/sh\ntrap '' XFSZ\nulimit -f 8\nexec {shutil.which('git')} \"$@\"\n")
    wrapper.chmod(0o755)
    return "unable to write file b"


def read_only_directory(place: Place) -> str:
    unprivileged_git(place.folder)
    closed = place.sample.path / "closed"
    closed.chmod(0o555)
    place.mends.append(lambda: closed.chmod(0o755))
    place.before = place.state
    return "closed/"


def only_an_old_file_that_stays(place: Place) -> str:
    """Git then prints an error, and `git checkout` exits with 0."""
    place.sample.git("checkout", "-q", "--detach", place.new)
    place.sample.git("rm", "-q", "closed/new")
    place.sample.git("commit", "-qm", "less", "closed/new")
    place.new = place.sample.head
    place.sample.git("checkout", "-q", place.branch)
    return read_only_directory(place)


def failing_filter(place: Place) -> str:
    config = {"smudge": "test ! -e broken && cat", "clean": "cat", "required": "true"}
    for key, value in config.items():
        place.sample.git("config", f"filter.picky.{key}", value)
    attributes = Path(place.sample.git("rev-parse", "--git-path", "info/attributes"))
    (place.sample.path / attributes).parent.mkdir(exist_ok=True)
    (place.sample.path / attributes).write_text("new/below/0 filter=picky\n")
    broken = place.sample.write("broken", "")
    place.mends.append(broken.unlink)
    place.before = place.state
    return "smudge filter picky failed"


FILTER = """
import pathlib, sys

def read():
    while size := int(sys.stdin.buffer.read(4) or b"0", 16):
        yield sys.stdin.buffer.read(size - 4)

def write(*packets):
    sys.stdout.buffer.write(b"".join(b"%04x%s" % (len(each) + 4, each) for each in packets) + b"0000")
    sys.stdout.buffer.flush()

list(read()), write(b"git-filter-server\\n", b"version=2\\n")
list(read()), write(b"capability=clean\\n", b"capability=smudge\\n", b"capability=delay\\n")
while given := list(read()):
    if b"command=list_available_blobs\\n" in given:
        write(), write(b"status=success\\n")
        continue
    content = list(read())
    if b"can-delay=1\\n" in given and pathlib.Path("broken").exists():
        write(b"status=delayed\\n")
    else:
        write(b"status=success\\n"), write(*content), write()
"""
"""A filter process (gitattributes(5)) that promises files for later."""


def filter_that_delivers_nothing(place: Place) -> str:
    """As LFS without its server; `git checkout` then exits with 0."""
    failing_filter(place)
    (place.folder / "filter.py").write_text(FILTER)
    place.sample.git("config", "filter.picky.process", f"{shlex.quote(sys.executable)} {place.folder}/filter.py")
    return "'new/below/0' was not filtered properly"


def read_only_refs(place: Place) -> str:
    """The index is the new commit's by then."""
    unprivileged_git(place.folder)
    refs = Path(place.sample.git("rev-parse", "--path-format=absolute", "--git-common-dir")) / "refs/heads"
    refs.chmod(0o555)
    place.mends.append(lambda: refs.chmod(0o755))
    return "ermission denied"


FAULTS = (
    full_disk, read_only_directory, only_an_old_file_that_stays, failing_filter, filter_that_delivers_nothing,
    read_only_refs,
)  # fmt: skip


async def sync(git: Git, place: Place) -> None:
    await git.syncing.sync(place.sample.path, place.branch, place.new, rebase=False, message="new")


async def land(git: Git, place: Place) -> None:
    repo = await git.discover(place.sample.path)
    assert await git.landing.targets.move(repo, place.branch, place.old, place.new, "land") == ""


@pytest.fixture
async def faulty(environment: dict[str, str], place: Place) -> AsyncIterator[Git]:
    """Git that meets the faults of a place."""
    git = Git({**environment, "PATH": f"{place.folder}:{environment['PATH']}"}, threads=1, lock_timeout=0.05)
    yield git
    await git.aclose()


both = pytest.mark.parametrize(
    ("place", "change"), [("sync", sync), ("sync", land), ("land", land)], indirect=["place"]
)
"""A sync of a session, and landings on a branch that a linked or the main worktree has."""
Change = Callable[[Git, Place], Awaitable[None]]


@pytest.mark.parametrize("fault", FAULTS)
@both
async def test_git_that_cannot_write_everything_changes_nothing(
    git: Git, faulty: Git, place: Place, change: Change, fault: Callable[[Place], str]
) -> None:
    words = fault(place)

    for _ in range(2):  # what is left would be in the way of the second try
        with pytest.raises(RametError, match=words):
            await change(faulty, place)
        assert place.state == place.before

    for mend in place.mends:
        mend()
    await change(git, place)
    assert (place.sample.head, place.sample.git("branch", "--show-current")) == (place.new, place.branch)
    assert place.sample.git("status", "--porcelain").splitlines() == ["A  own", "?? untracked"]


@pytest.mark.parametrize("fault", [full_disk, read_only_directory, only_an_old_file_that_stays])
async def test_a_rewind_that_cannot_write_everything_changes_nothing(
    git: Git, faulty: Git, place: Place, fault: Callable[[Place], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rametd.git.snapshots.restore._RETRIES_S", (0.0,))
    words = fault(place)
    other = place.folder / "other"
    place.sample.git("worktree", "add", "-q", "--detach", str(other), place.new)
    target = await git.snapshots.take(other)

    async def keep(now: str) -> None:
        del now

    with pytest.raises(GitFailedError, match=words):
        await faulty.snapshots.restore_files(place.sample.path, target, keep)

    assert place.state == place.before
    for mend in place.mends:
        mend()
    await git.snapshots.restore_files(place.sample.path, target, keep)
    place.sample.git("add", "--all")
    assert place.sample.git("diff", "--cached", "--name-only", place.new) == ""


@both
@pytest.mark.parametrize("refused", [False, True])
async def test_an_empty_directory_that_git_would_fill_stays(
    faulty: Git, place: Place, change: Change, refused: bool
) -> None:
    failing_filter(place)
    (place.sample.path / "new").mkdir()
    if refused:
        place.sample.write("a", "mine\n")
    before = place.state

    with pytest.raises((GitFailedError, WorktreeChangedError)):
        await change(faulty, place)

    assert place.state == before


@both
async def test_a_git_that_was_killed_leaves_only_its_lock(git: Git, faulty: Git, place: Place, change: Change) -> None:
    failing_filter(place)
    place.sample.git("config", "filter.picky.smudge", "test ! -e broken && cat || kill -9 $PPID")

    with pytest.raises(GitFailedError, match="git was killed by signal 9"):
        await change(faulty, place)

    assert place.state == place.before
    with pytest.raises(GitBusyError, match=f"{place.git_dir}/index.lock"):
        await change(faulty, place)
    (place.git_dir / "index.lock").unlink()
    place.mends[0]()
    await change(git, place)
    assert place.sample.head == place.new


@pytest.mark.parametrize("place", ["land"], indirect=True)
async def test_a_branch_that_is_checked_out_nowhere_and_cannot_be_written_stays(
    git: Git, faulty: Git, place: Place
) -> None:
    place.sample.git("checkout", "-q", "--detach")
    words, before = read_only_refs(place), place.state

    with pytest.raises(GitFailedError, match=words):
        await land(faulty, place)

    assert place.state == before
    place.mends[0]()
    await land(git, place)
    assert place.sample.git("rev-parse", place.branch) == place.new


@pytest.mark.parametrize("lock", ["index", "HEAD", "refs/heads/main"])
@pytest.mark.parametrize("place", ["land"], indirect=True)
async def test_a_locked_checkout_is_left_alone(git: Git, faulty: Git, place: Place, lock: str) -> None:
    left = place.git_dir / f"{lock}.lock"
    left.touch()

    with pytest.raises(GitBusyError, match=str(left)):
        await land(faulty, place)

    left.unlink()
    assert place.state == place.before
    await land(git, place)


@both
async def test_what_a_person_writes_while_git_runs_stays(faulty: Git, place: Place, change: Change) -> None:
    failing_filter(place)
    gone, link = place.sample.path / "longer", place.folder / "elsewhere"
    (link / "below").mkdir(parents=True)
    (link / "below" / "0").write_text("mine\n")
    script = f"echo mine > a; rm {gone}; mkdir {gone}; rm -rf closed; ln -s {link} closed; cp a closed/new; exit 1"
    (place.folder / "script").write_text(script)
    place.sample.git("config", "filter.picky.smudge", f"sh {place.folder}/script")

    with pytest.raises(GitFailedError, match="smudge filter picky failed"):
        await change(faulty, place)

    assert (place.sample.path / "a").read_text() == "mine\n"
    assert gone.is_dir()
    assert (place.sample.path / "closed").is_symlink()
    assert sorted(path.name for path in link.iterdir()) == ["below", "new"]
    assert (link / "new").read_text() == "mine\n"
    assert set(place.sample.git("status", "--porcelain").splitlines()) == {
        "A  own", " M a", " D closed/x", " D longer", "?? broken", "?? closed", "?? untracked",
    }  # fmt: skip


@both
async def test_an_error_names_gits_reason_before_the_files_that_stay(faulty: Git, place: Place, change: Change) -> None:
    failing_filter(place)
    unprivileged_git(place.folder)
    place.sample.git("config", "filter.picky.smudge", "chmod 555 closed; exit 1")

    with pytest.raises(CheckoutIncompleteError) as caught:
        await change(faulty, place)

    (place.sample.path / "closed").chmod(0o755)
    first, _, second = caught.value.message.partition("could not be taken back")
    assert "smudge filter picky failed" in first
    assert "closed/" in second
    assert str(place.sample.path) in caught.value.hint
    assert (place.sample.path / "a").read_text() == "old\n"


@pytest.mark.parametrize("fault", [full_disk, read_only_directory, failing_filter])
@pytest.mark.parametrize("place", ["land"], indirect=True)
async def test_a_landing_that_was_killed_before_it_was_undone_is_undone_later(
    git: Git, repo: RepositoryInfo, place: Place, fault: Callable[[Place], str]
) -> None:
    fault(place)
    environment = {**place.sample.environment, "PATH": f"{place.folder}:{place.sample.environment['PATH']}"}
    assert Sample(place.sample.path, environment).run("merge", "-q", "--ff-only", place.new).returncode != 0
    (place.git_dir / "index.lock").touch()  # of a git that was killed too
    place.sample.write("z", "mine, since\n")

    paths = await git.landing.targets.settle(repo, place.branch, place.old, place.new)

    assert {"a", "gone", "folder"} <= set(paths)
    assert "z" not in paths
    assert (place.sample.path / "z").read_text() == "mine, since\n"
    (place.git_dir / "index.lock").unlink()
    place.sample.git("checkout", "-q", "z")
    assert place.state == place.before
    assert await git.landing.targets.settle(repo, place.branch, place.old, place.new) == ()


@pytest.mark.parametrize("place", ["land"], indirect=True)
async def test_a_landing_that_was_killed_before_git_began_changes_nothing(
    git: Git, repo: RepositoryInfo, place: Place
) -> None:
    (place.sample.path / "gone").unlink()
    (place.sample.path / "a").unlink()
    place.sample.write("b", "mine\n")
    (place.sample.path / "mode").touch()
    before = place.state

    assert await git.landing.targets.settle(repo, place.branch, place.old, place.new) == ()
    assert place.state == before


def untracked_file_for_a_directory(place: Place) -> None:
    place.sample.write("new", "mine\n")


def untracked_file_in_a_directory(place: Place) -> None:
    place.sample.write("folder/mine", "mine\n")


def untracked_file_of_the_same_name(place: Place) -> None:
    place.sample.write("new/1", "mine\n")


def ignored_file_of_the_same_name(place: Place) -> None:
    place.sample.write(".git/info/exclude", "1\n")
    place.sample.write("new/1", "mine\n")


def changed(place: Place) -> None:
    place.sample.write("a", "mine\n")


def deleted(place: Place) -> None:
    for name in ("a", "gone", "closed/x"):
        (place.sample.path / name).unlink()


def deleted_directory(place: Place) -> None:
    shutil.rmtree(place.sample.path / "closed")


def deleted_and_replaced(place: Place) -> None:
    (place.sample.path / "gone").unlink()
    place.sample.write("gone/mine", "mine\n")


def staged_deletion(place: Place) -> None:
    place.sample.git("rm", "-q", "a")


def staged_deletion_as_it_comes(place: Place) -> None:
    place.sample.git("rm", "-q", "gone")


def staged_as_it_comes(place: Place) -> None:
    place.sample.git("checkout", "-q", place.new, "--", "new/1", "z")


def staged_as_it_comes_and_changed(place: Place) -> None:
    staged_as_it_comes(place)
    place.sample.write("z", "mine\n")


def staged_as_it_comes_and_deleted(place: Place) -> None:
    staged_as_it_comes(place)
    (place.sample.path / "z").unlink()


def empty_directory(place: Place) -> None:
    (place.sample.path / "new/1").mkdir(parents=True)


def nothing(place: Place) -> None:
    pass


STATES = (
    nothing, untracked_file_for_a_directory, untracked_file_in_a_directory, untracked_file_of_the_same_name,
    ignored_file_of_the_same_name, changed, deleted, deleted_directory, deleted_and_replaced, staged_deletion,
    staged_deletion_as_it_comes, staged_as_it_comes, staged_as_it_comes_and_changed,
    staged_as_it_comes_and_deleted, empty_directory,
)  # fmt: skip


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("place", ["land"], indirect=True)
async def test_files_are_in_the_way_if_and_only_if_git_refuses(
    git: Git, place: Place, state: Callable[[Place], None]
) -> None:
    state(place)
    before = place.state

    found = await git.landing.targets.in_the_way(Checkout(place.sample.path, ""), place.old, place.new)
    assert place.state == before
    done = place.sample.run("merge", "-q", "--ff-only", "--no-overwrite-ignore", place.new)

    assert bool(found) == (done.returncode != 0), (found, done.stderr)
    assert found or place.sample.head == place.new


@pytest.fixture
def incomplete(sample: Sample, tree: Sample, tmp_path: Path) -> tuple[str, str]:
    """Detach the tree at a new commit as git does on a full disk, with later edits; return both
    commits."""
    for name in ("written", "edited", "missing", "partial"):
        tree.write(name, "old\n")
    old = tree.commit("old")
    for name in ("written", "edited", "missing", "partial", "added/one", "added/two", "outside/victim"):
        tree.write(name, "new\n")
    new = tree.commit("new")
    tree.git("reset", "--soft", old)
    tree.git("checkout", "-q", "--detach")
    tree.git("update-ref", "--no-deref", "HEAD", new)
    tree.write("edited", "mine\n")
    tree.write("added/two", "mine\n")
    tree.write("partial", "ne")
    (tree.path / "missing").unlink()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "victim").write_text("new\n")
    shutil.rmtree(tree.path / "outside")
    (tree.path / "outside").symlink_to(elsewhere)
    return old, new


async def test_a_sync_that_was_killed_after_an_incomplete_checkout_is_not_taken_for_done(
    git: Git, tree: Sample, incomplete: tuple[str, str]
) -> None:
    old, new = incomplete
    assert await git.syncing.settle(tree.path, "work", old, new) == CutOff.HALF
    assert (tree.head, tree.git("branch", "--show-current")) == (old, "work")
    assert (tree.path / "edited").read_text() == "mine\n"
