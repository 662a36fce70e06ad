"""Everything in a worktree as a tree or a commit, without touching the user's index, HEAD, branches or stash.

Git itself looks at the files (`git add -A` on a private copy of the index) because only git knows the filters of LFS and
`working-tree-encoding`, sparse and split indexes; libgit2 would store an LFS file's content in place of its pointer.
"""

import shutil
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pygit2

from rametd.domain.errors import GitFailedError
from rametd.git.context import GitContext
from rametd.git.locks import DIRECTORY
from rametd.git.process import Completed, failed
from rametd.git.registrations import verify_worktree
from rametd.git.repository import Head, common_dir, head_of, open_repository

_STALE: Final = 3600.0
"""Seconds after which a private index is one that a killed daemon left."""

_AS_IS: Final = (
    *("-c", "core.splitIndex=false"),  # a shared index would be written next to the user's
    *("-c", "core.safecrlf=false"),  # a warning for people; as an error it would leave the file out
    *("-c", "advice.addEmbeddedRepo=false"),
)

_UNOPENED: Final = "warning: could not open directory "
_VANISHED: Final = "No such file or directory"

ADD_ALL: Final = (*_AS_IS, "add", "--all", "--sparse", "--ignore-errors")
"""Everything that is not ignored, into an index of our own."""


@dataclass(frozen=True, slots=True)
class WorktreeTree:
    """The tree of a worktree's files. ``skipped``: git's words for each file and directory that could not be read."""

    tree: str
    head: Head
    skipped: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A commit of a worktree's files. ``created`` is False when they equal HEAD, whose commit it then is."""

    commit: str
    tree: str
    created: bool
    skipped: tuple[str, ...]


async def write_tree(git: GitContext, worktree: Path, git_dir: Path | None = None) -> WorktreeTree:
    """Write all files, untracked ones included and ignored ones not, as a tree object.

    ``git_dir`` is for a worktree whose ``.git`` file is gone. Raises WorktreeChangedError, GitFailedError, GitBusyError.
    """
    if git_dir is None:
        git_dir = await git.compute(verify_worktree, worktree, None)
    # Both ends are named, so that git cannot climb to a repository further up should the .git file vanish.
    there = (f"--git-dir={git_dir}", f"--work-tree={worktree}")
    async with git.worktree_lock(worktree), private_index(git, git_dir) as index:
        environment = {"GIT_INDEX_FILE": str(index)}
        done = await git.process.run(worktree, *there, *ADD_ALL, environment=environment)
        if done.returncode != 0 or unopened(done):  # what vanished during the walk is simply gone the second time
            done = await git.process.run(worktree, *there, *ADD_ALL, environment=environment)
        skipped = _skipped(done)
        tree = await git.process.write(worktree, *there, "write-tree", "--missing-ok", environment=environment)
        head = await git.compute(lambda: head_of(open_repository(git_dir)))
    return WorktreeTree(tree.decode().strip(), head, skipped)


async def current_tree(git: GitContext, worktree: Path, git_dir: Path | None = None) -> WorktreeTree:
    """The same as `write_tree`, from the worktree's tracker where it has one."""
    tracker = git.trackers.get(worktree)
    return await (tracker.tree() if tracker is not None else write_tree(git, worktree, git_dir))


async def snapshot(git: GitContext, worktree: Path, message: str) -> Snapshot:
    """See `Git.snapshot`."""
    written = await current_tree(git, worktree)

    def commit() -> Snapshot:
        repository = open_repository(worktree)
        head = written.head.commit
        if head is not None and str(repository[head].peel(pygit2.Tree).id) == written.tree:
            return Snapshot(head, written.tree, created=False, skipped=written.skipped)
        made = write_commit(repository, written.tree, message, [head] if head is not None else [])
        return Snapshot(made, written.tree, created=True, skipped=written.skipped)

    return await git.compute(commit)


def write_commit(repository: pygit2.Repository, tree: str, message: str, parents: list[str]) -> str:
    """A commit object by Ramet; no ref is moved. The user's identity is not needed, and not borrowed."""
    author = pygit2.Signature("Ramet", "ramet@localhost", int(time.time()), 0)
    made = repository.create_commit(
        None, author, author, message, pygit2.Oid(hex=tree), [pygit2.Oid(hex=p) for p in parents]
    )
    return str(made)


@asynccontextmanager
async def private_index(git: GitContext, git_dir: Path) -> AsyncIterator[Path]:
    """A copy of the user's index, for a while."""
    folder = await git.compute(_copy_index, git_dir)
    try:
        yield folder / "index"
    finally:
        await git.compute(shutil.rmtree, folder)


def _copy_index(git_dir: Path) -> Path:
    corner = common_dir(git_dir) / DIRECTORY
    try:
        corner.mkdir(exist_ok=True)
        for old in corner.glob("index-*"):
            if time.time() - old.stat().st_mtime > _STALE:
                shutil.rmtree(old)
        folder = Path(tempfile.mkdtemp(prefix="index-", dir=corner))
        if (git_dir / "index").exists():
            # With its time stamp: git re-reads a file whose time is not older than the index's ("racily clean"). A copy stamped
            # later would call a file unchanged that was written, at the same size, right after the user's index was.
            shutil.copy2(git_dir / "index", folder / "index")
    except OSError as error:
        raise GitFailedError(
            f"cannot write {error.filename}: {error.strerror}", hint="the repository must be writable"
        ) from error
    return folder


def unopened(done: Completed) -> tuple[str, ...]:
    """Git's words for each directory that it was not allowed to look into: it only warns of them, and leaves out what is in there."""
    lines = done.stderr.decode(errors="replace").splitlines()
    found = (line for line in lines if line.startswith(_UNOPENED) and not line.endswith(_VANISHED))
    return tuple(dict.fromkeys(line.removeprefix("warning: ") for line in found))


def _skipped(done: Completed) -> tuple[str, ...]:
    closed = unopened(done)
    if done.returncode == 0:
        return closed
    lines = done.stderr.decode(errors="replace").splitlines()
    errors = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    if not errors or any(line.startswith("fatal:") for line in lines):
        raise failed(done, ("snapshot",))
    return tuple(dict.fromkeys((*errors, *closed)))
