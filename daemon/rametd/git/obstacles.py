"""Preflight: files that a checkout would overwrite. Git protects what it tracks or shows as untracked; ignored files, and directories of them with
whatever repositories those hold, it removes without a word."""

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from rametd.domain.errors import WorktreeChangedError
from rametd.domain.text import utf8
from rametd.git.context import GitContext

_GITLINK: Final = "160000"
_AT_ONCE: Final = 500
"""Paths that are handed to one git: the arguments of a process have a limit."""

_NAMED: Final = 10
"""Files that a refusal names."""


async def additions(git: GitContext, worktree: Path, there: Iterable[str], *words: str) -> dict[str, str]:
    """The paths that a `diff-tree` or `log` of those words adds, or makes something of another type, each with the mode it comes to have."""
    verb, *rest = words
    shown = ("--raw", "-r", "-z", "--no-abbrev", "--no-renames", "--diff-filter=AT")
    output = os.fsdecode(await git.process.read(worktree, *there, verb, *shown, *rest))
    fields = (field for field in output.split("\0") if field)
    return {next(fields): record.split()[1] for record in fields}


def in_the_way(worktree: Path, wanted: Iterable[str]) -> set[str]:
    """What is there now where those paths are to come: each itself, or the file that one of its directories is."""
    found: set[str] = set()
    for path in wanted:
        place = worktree
        for part in path.split("/"):
            place /= part
            if not place.is_dir() or place.is_symlink():
                break
        if os.path.lexists(place):
            found.add(str(place.relative_to(worktree)))
    return found


async def uncommitted(git: GitContext, worktree: Path, there: Iterable[str], wanted: Iterable[str]) -> list[str]:
    """The files `in_the_way` that git does not track, ignored ones included."""
    paths = sorted(await git.compute(in_the_way, worktree, wanted))
    found: list[str] = []
    for first in range(0, len(paths), _AT_ONCE):
        listing = ("--literal-pathspecs", "ls-files", "--others", "-z", "--", *paths[first : first + _AT_ONCE])
        found += os.fsdecode(await git.process.read(worktree, *there, *listing)).split("\0")[:-1]
    return found


async def refuse_repositories(git: GitContext, worktree: Path, wanted: Mapping[str, str]) -> None:
    """Raise WorktreeChangedError where files (``wanted``: their modes) would come in the place of, or into, a repository or worktree inside:
    it has commits, or work, that are nowhere else."""
    files = [path for path, mode in wanted.items() if mode != _GITLINK]
    found = await git.compute(lambda: sorted({place for path in files for place in _repositories(worktree, path)}))
    if found:
        raise WorktreeChangedError(
            f"git repositories are in the way: {named(found)}",
            hint="files are to come in their place: move them out of the worktree, then try again",
            worktree=str(worktree),
        )


def _repositories(worktree: Path, path: str) -> Iterator[str]:
    place = worktree
    for part in path.split("/"):
        place /= part
        if not place.is_dir() or place.is_symlink():
            return
        if os.path.lexists(place / ".git"):
            yield str(place.relative_to(worktree))
            return
    for folder, folders, names in os.walk(place):
        if ".git" in folders or ".git" in names:
            yield os.path.relpath(folder, worktree)
            folders.clear()


def named(paths: list[str]) -> str:
    """So many of the names as a message has room for."""
    words = ", ".join(paths[:_NAMED]) + (", …" if len(paths) > _NAMED else "")
    return utf8(words)
