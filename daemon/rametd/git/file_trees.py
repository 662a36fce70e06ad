"""The files of a worktree as a tree, without touching the user's index, HEAD, branches or stash.

Git itself reads the files (`git add -A` on a private copy of the index). Only git knows the filters
of LFS, `working-tree-encoding`, and sparse and split indexes; libgit2 would store an LFS file's
content instead of its pointer.
"""

import shutil
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import pygit2

from rametd.domain.errors import GitFailedError
from rametd.git.context import GitContext, WorktreeTree
from rametd.git.foreign import has_no_links
from rametd.git.locks import DIRECTORY
from rametd.git.process import at
from rametd.git.repository import common_dir, head_of, open_repository
from rametd.git.sharing import temporary
from rametd.git.unread import add_all, is_unborn

_STALE: Final = 3600.0
"""Age in seconds from which a private index is one that a killed daemon left."""


async def write_tree(git: GitContext, worktree: Path, git_dir: Path | None = None) -> WorktreeTree:
    """Write all files as a tree object, including untracked and without ignored ones.

    ``git_dir`` is for a worktree whose ``.git`` file is gone. Raises WorktreeChangedError,
    GitFailedError, GitBusyError.
    """
    if git_dir is None:
        git_dir = await git.verified(worktree, None)
    # Name both directories: if the .git file vanishes, git must not use an outer repository.
    there = at(git_dir, worktree)
    async with git.worktree_lock(worktree), private_index(git, git_dir) as index:
        skipped = await add_all(git, worktree, git_dir, index)
        environment = {"GIT_INDEX_FILE": str(index)}
        tree = await git.process.write(worktree, *there, "write-tree", "--missing-ok", environment=environment)
        head, plain = await git.compute(lambda: (head_of(open_repository(git_dir)), has_no_links(index)))
    return WorktreeTree(tree.decode().strip(), head, skipped, plain and not any(map(is_unborn, skipped)))


async def current_tree(git: GitContext, worktree: Path, git_dir: Path | None = None) -> WorktreeTree:
    """Return the result of `write_tree`, from the worktree's tracker if it has one."""
    source = git.tree_sources.get(worktree)
    return await (source.tree() if source is not None else write_tree(git, worktree, git_dir))


def write_commit(repository: pygit2.Repository, tree: str, message: str, parents: list[str]) -> str:
    """Write a commit object with Ramet as its author, and move no ref."""
    author = pygit2.Signature("Ramet", "ramet@localhost", int(time.time()), 0)
    made = repository.create_commit(
        None, author, author, message, pygit2.Oid(hex=tree), [pygit2.Oid(hex=p) for p in parents]
    )
    return str(made)


@asynccontextmanager
async def private_index(git: GitContext, git_dir: Path) -> AsyncIterator[Path]:
    """Yield a copy of the user's index, which exists for the context. For a missing index, or one
    that a loss of power left empty, yield that of HEAD: it has the tracked files that are
    ignored."""
    folder = await git.compute(_copy_index, git_dir)
    try:
        if not await git.compute((folder / "index").exists):
            words = (f"--git-dir={git_dir}", "read-tree", "HEAD")  # fails on an unborn branch
            await git.process.run(git_dir, *words, environment={"GIT_INDEX_FILE": str(folder / "index")})
        yield folder / "index"
    finally:
        await git.compute(shutil.rmtree, folder)


@asynccontextmanager
async def scratch_index(git: GitContext, common: Path) -> AsyncIterator[Path]:
    """Yield a path for an empty private index, which exists for the context."""

    folder = await git.compute(temporary, common / DIRECTORY)
    try:
        yield folder / "index"
    finally:
        await git.compute(shutil.rmtree, folder)


def has_content(index: Path) -> bool:
    """Return whether an index begins as one (gitformat-index(5)). Blocks."""
    try:
        with index.open("rb") as file:
            return file.read(4) == b"DIRC"
    except FileNotFoundError:
        return False


def _copy_index(git_dir: Path) -> Path:
    corner = common_dir(git_dir) / DIRECTORY
    try:
        for old in corner.glob("index-*"):
            with suppress(FileNotFoundError, PermissionError):  # another task is removing it, or it is another person's
                if time.time() - old.stat().st_mtime > _STALE:
                    shutil.rmtree(old)
        folder = temporary(corner)
    except OSError as error:
        raise _unwritable(error) from error
    try:
        if has_content(git_dir / "index"):
            # Preserve the time stamp: git re-reads a file whose time is not older than the index's
            # ("racily clean"). With a later stamp, git would miss a change of a file that was
            # written, at the same size, right after the user's index.
            shutil.copy2(git_dir / "index", folder / "index")
    except OSError as error:
        shutil.rmtree(folder)
        raise _unwritable(error) from error
    return folder


def _unwritable(error: OSError) -> GitFailedError:
    return GitFailedError(f"cannot write {error.filename}: {error.strerror}", hint="the repository must be writable")
