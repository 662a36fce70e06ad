"""A private git directory for a worktree, with its own HEAD, index and state; everything else is
the repository's.

Git is most careful when it switches from one commit to another: it refuses if a file differs from
the index and, on request, if an ignored file is in the way. With a private HEAD such a switch does
not touch the person's HEAD. The directory is like those of `git worktree add`
(gitrepository-layout(5)), but not registered; `file_trees.private_index` removes it after a kill.
"""

import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pygit2

from rametd.git.context import GitContext
from rametd.git.file_trees import private_index, write_commit
from rametd.git.incomplete import check_out
from rametd.git.process import at, failed
from rametd.git.repository import common_dir, open_repository

_OF_THE_WORKTREE: Final = ("info/sparse-checkout", "config.worktree")
"""Files of a worktree's git directory for sparse checkout and its own configuration."""
_GITS_OWN: Final = frozenset({"info", "logs", "modules", "refs", "sequencer"})
"""Directories that git creates in a worktree's git directory."""
_NOTHING: Final = ("-c", "core.sparseCheckout=true", "-c", "core.sparseCheckoutCone=false", "-c", "index.sparse=false")
"""Options for a checkout without files. Merges then write only files in conflict."""


@dataclass(frozen=True, slots=True)
class Scratch:
    """``there``: options that name both directories for git."""

    folder: Path
    there: tuple[str, ...]


@asynccontextmanager
async def without_files(git: GitContext, git_dir: Path, commit: str) -> AsyncIterator[Scratch]:
    """Yield a detached checkout of ``commit`` without files, for git commands that need a
    worktree."""
    async with private_index(git, git_dir) as index:
        folder, files = index.parent, index.parent / "files"

        def make() -> None:
            index.unlink(missing_ok=True)
            files.mkdir()
            _make(folder, git_dir, commit, ())
            (folder / "info").mkdir()
            (folder / "info" / "sparse-checkout").write_text("!/*\n")

        await git.compute(make)
        scratch = Scratch(folder, (*at(folder, files), *_NOTHING))
        await git.process.write(files, *scratch.there, "read-tree", "-m", "-u", "HEAD")
        yield scratch


async def change_files(git: GitContext, worktree: Path, git_dir: Path, index: Path, now: str, target: str) -> None:
    """Change a worktree's files from the tree ``now``, which the private ``index`` has, to
    ``target``, a commit or tree. HEAD and the index stay.

    Write only files that differ. Raise GitFailedError, with nothing written, if such a file has
    changed since the index was written, if another file, even an ignored one, is at its path, or if
    git cannot write all; CheckoutIncompleteError if the written ones could not be taken back. Git
    itself has a short race between its check and its first write.
    """

    def make() -> tuple[str, str]:
        repository = open_repository(git_dir)
        trees = [str(repository[name].peel(pygit2.Tree).id) for name in (now, target)]
        before, after = (write_commit(repository, tree, "files", []) for tree in trees)
        _make(index.parent, git_dir, before, _OF_THE_WORKTREE)
        return before, after

    before, after = await git.compute(make)
    words = ("checkout", "--quiet", "--no-overwrite-ignore", "--no-recurse-submodules", "--detach", after)
    done = await check_out(git, worktree, index.parent, None, before, after, words)
    if done.returncode != 0:
        raise failed(done, words)


def _make(folder: Path, git_dir: Path, head: str, copied: Sequence[str]) -> None:
    (folder / "commondir").write_text(f"{common_dir(git_dir)}\n")
    (folder / "HEAD").write_text(f"{head}\n")
    for name in copied:
        if (git_dir / name).is_file():
            (folder / name).parent.mkdir(exist_ok=True)
            shutil.copy(git_dir / name, folder / name)
    # Filters such as git-crypt look for their keys in the directory that `git rev-parse --git-dir`
    # names.
    for each in git_dir.iterdir() if git_dir != common_dir(git_dir) else ():
        if each.name not in _GITS_OWN and not each.name.startswith("rebase-") and each.is_dir():
            (folder / each.name).symlink_to(each, target_is_directory=True)
