"""Preflight: files that a checkout would overwrite. Git protects tracked and untracked files, but
silently removes ignored files, and ignored directories with nested repositories in them."""

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from rametd.domain.errors import WorktreeChangedError
from rametd.domain.text import utf8
from rametd.git.context import GitContext

_GITLINK: Final = "160000"
_AT_ONCE: Final = 500
"""Maximum number of paths for one git process, whose arguments have a size limit."""

_NAMED: Final = 10
"""Maximum number of files to name in a refusal."""


async def additions(git: GitContext, worktree: Path, there: Iterable[str], *words: str) -> dict[str, str]:
    """Return the paths that a `diff-tree` or `log` with these arguments adds or changes in type,
    with their new modes."""
    verb, *rest = words
    shown = ("--raw", "-r", "-z", "--no-abbrev", "--no-renames", "--diff-filter=AT")
    output = os.fsdecode(await git.process.read(worktree, *there, verb, *shown, *rest))
    fields = (field for field in output.split("\0") if field)
    return {next(fields): record.split()[1] for record in fields}


def in_the_way(worktree: Path, wanted: Iterable[str]) -> set[str]:
    """Return the paths that exist, and files at the place of a directory that a path needs."""
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
    """Return the files `in_the_way` that git does not track, including ignored ones."""
    paths = sorted(await git.compute(in_the_way, worktree, wanted))
    found: list[str] = []
    for first in range(0, len(paths), _AT_ONCE):
        listing = ("--literal-pathspecs", "ls-files", "--others", "-z", "--", *paths[first : first + _AT_ONCE])
        found += os.fsdecode(await git.process.read(worktree, *there, *listing)).split("\0")[:-1]
    return found


async def refuse_repositories(git: GitContext, worktree: Path, wanted: Mapping[str, str]) -> None:
    """Raise WorktreeChangedError if files (``wanted``: their modes) would replace, or be written
    into, a nested repository or worktree, which may have commits or work that exist nowhere
    else."""
    files = [path for path, mode in wanted.items() if mode != _GITLINK]
    found = await git.compute(lambda: sorted({place for path in files for place in _repositories(worktree, path)}))
    if found:
        raise WorktreeChangedError(
            f"git repositories are in the way: {named(found)}",
            hint="files need their places: move them out of the worktree, then try again",
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
    """Join names, as many as a message has room for."""
    words = ", ".join(paths[:_NAMED]) + (", …" if len(paths) > _NAMED else "")
    return utf8(words)
