"""A git directory of our own beside a worktree's: HEAD, the index and what git is in the middle of are in there, all else is the repository's.

Git lets itself be guarded better as it goes from one commit to another than in any other way of writing files: it refuses where a file is not as the
index has it, and, asked to, where something lies that is ignored. So we give it a HEAD to go from that is nobody else's. The directory is one as
`git worktree add` makes them (gitrepository-layout(5)), but registered nowhere; a kill leaves it to `snapshot.private_index` to clear away.
"""

import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pygit2

from rametd.git.context import GitContext
from rametd.git.repository import common_dir, open_repository
from rametd.git.snapshot import private_index, write_commit

_OF_THE_WORKTREE: Final = ("info/sparse-checkout", "config.worktree")
"""Which files a worktree has, and settings of its own."""
_GITS_OWN: Final = frozenset({"info", "logs", "modules", "refs", "sequencer"})
"""Directories that git makes in the git directory of a worktree."""
_NOTHING: Final = ("-c", "core.sparseCheckout=true", "-c", "core.sparseCheckoutCone=false", "-c", "index.sparse=false")
"""With patterns that no file fits: no file is checked out, and merges write none but those in conflict."""


@dataclass(frozen=True, slots=True)
class Scratch:
    """``there`` names both ends for git."""

    folder: Path
    there: tuple[str, ...]


@asynccontextmanager
async def without_files(git: GitContext, git_dir: Path, commit: str) -> AsyncIterator[Scratch]:
    """A checkout of ``commit``, detached, without any of its files: for what git can only do in a worktree."""
    async with private_index(git, git_dir) as index:
        folder, files = index.parent, index.parent / "files"

        def make() -> None:
            index.unlink(missing_ok=True)
            files.mkdir()
            _make(folder, git_dir, commit, ())
            (folder / "info").mkdir()
            (folder / "info" / "sparse-checkout").write_text("!/*\n")

        await git.compute(make)
        scratch = Scratch(folder, (f"--git-dir={folder}", f"--work-tree={files}", *_NOTHING))
        await git.process.write(files, *scratch.there, "read-tree", "-m", "-u", "HEAD")
        yield scratch


async def change_files(git: GitContext, worktree: Path, git_dir: Path, index: Path, now: str, target: str) -> None:
    """Have the files of a worktree, which a private ``index`` has as the tree ``now``, be those of ``target``, a commit or tree. HEAD and the index stay.

    Only what differs is written. Raises GitFailedError, with nothing written, where a file that differs changed since the index was made, or something
    came in the place of one, be it ignored. What is left is the instant in which git itself goes from its check to its first write.
    """

    def make() -> str:
        repository = open_repository(git_dir)
        trees = [str(repository[name].peel(pygit2.Tree).id) for name in (now, target)]
        commits = [write_commit(repository, tree, "files", []) for tree in trees]
        _make(index.parent, git_dir, commits[0], _OF_THE_WORKTREE)
        return commits[1]

    commit = await git.compute(make)
    there = (f"--git-dir={index.parent}", f"--work-tree={worktree}")
    words = ("checkout", "--quiet", "--no-overwrite-ignore", "--no-recurse-submodules", "--detach", commit)
    await git.process.write(worktree, *there, *words)


def _make(folder: Path, git_dir: Path, head: str, copied: Sequence[str]) -> None:
    (folder / "commondir").write_text(f"{common_dir(git_dir)}\n")
    (folder / "HEAD").write_text(f"{head}\n")
    for name in copied:
        if (git_dir / name).is_file():
            (folder / name).parent.mkdir(exist_ok=True)
            shutil.copy(git_dir / name, folder / name)
    # Filters look for their keys in the directory that `git rev-parse --git-dir` names, as git-crypt does.
    for each in git_dir.iterdir() if git_dir != common_dir(git_dir) else ():
        if each.name not in _GITS_OWN and not each.name.startswith("rebase-") and each.is_dir():
            (folder / each.name).symlink_to(each, target_is_directory=True)
