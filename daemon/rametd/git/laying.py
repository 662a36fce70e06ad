"""Laying kept files over a worktree that was made for them, without a change to what somebody has written there since.

Between a kill of the daemon and its next start anybody may have been at a tree that is half made. What is neither as it was laid out nor as it is to be
is theirs, and stays.
"""

import filecmp
import os
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Final

from rametd.domain.errors import GitFailedError
from rametd.git.context import GitContext
from rametd.git.obstacles import additions, in_the_way
from rametd.git.scratch import change_files
from rametd.git.snapshot import private_index
from rametd.git.unread import add_all, unread

_GITLINK: Final = "160000"

Entry = tuple[str, str]
"""Mode and object of a file in a tree."""


async def lay(
    git: GitContext,
    worktree: Path,
    git_dir: Path,
    start: str,
    wanted: str,
    *,
    apart: Collection[str] = (),
    fresh: bool = False,
) -> tuple[str, ...]:
    """Have the files of a worktree that was made at ``start`` be those of ``wanted`` (commits or trees). Returns the paths of what is not, since
    somebody else's files are there. Raises GitFailedError.

    ``apart`` are the places of repositories inside, which are seen to on their own. ``fresh``: it was made just now, so that where git cannot read it,
    as by a filter that fails, it counts as it was made.
    """
    there = (f"--git-dir={git_dir}", f"--work-tree={worktree}")
    async with git.worktree_lock(worktree), private_index(git, git_dir) as index:
        try:
            unread_words = await add_all(git, worktree, git_dir, index)
        except GitFailedError:
            if not fresh:
                raise
            await git.process.write(worktree, *there, "restore", f"--source={wanted}", "--worktree", "--", ":/")
            return ()
        environment = {"GIT_INDEX_FILE": str(index)}
        now = await _written(git, worktree, there, index)
        coming = await additions(git, worktree, there, "diff-tree", now, wanted)
        if ignored := await git.compute(in_the_way, worktree, _outside(apart, coming)):
            paths = b"".join(os.fsencode(path) + b"\0" for path in ignored)
            add = ("add", "--force", "--sparse", "--pathspec-from-file=-", "--pathspec-file-nul")
            await git.process.write(worktree, *there, "--literal-pathspecs", *add, stdin=paths, environment=environment)
            now = await _written(git, worktree, there, index)
        places = [place for words in unread_words if (place := unread(words).place) is not None]
        theirs = await _theirs(git, worktree, there, index.parent, (now, start, wanted), places)
        target = await _with(git, worktree, there, index.parent / "target", wanted, theirs)
        if target != now:
            await change_files(git, worktree, git_dir, index, now, target)
        return tuple(sorted(_outside(apart, await _entries(git, worktree, there, wanted, target, "MDT"))))


def _outside(places: Collection[str], paths: Iterable[str]) -> list[str]:
    return [path for path in paths if not _within(places, path)]


def _within(places: Collection[str], path: str) -> bool:
    return any(path == place or path.startswith(f"{place}/") for place in places)


async def is_untouched(git: GitContext, worktree: Path, git_dir: Path, known: Iterable[str]) -> bool:
    """Whether a worktree has nothing but files of commits that are ``known``, whole, ignored ones included. Raises GitFailedError."""
    there = (f"--git-dir={git_dir}", f"--work-tree={worktree}")
    ignored = ("ls-files", "-z", "--others", "--ignored", "--exclude-standard")
    async with git.worktree_lock(worktree), private_index(git, git_dir) as index:
        if await add_all(git, worktree, git_dir, index):
            return False
        now = await _written(git, worktree, there, index)
        if await git.process.read(worktree, *there, *ignored, environment={"GIT_INDEX_FILE": str(index)}):
            return False
        unknown: set[str] | None = None
        for commit in known:
            others = set(await _entries(git, worktree, there, now, commit, "MDT"))
            unknown = others if unknown is None else unknown & others
        return not unknown


async def _written(git: GitContext, worktree: Path, there: tuple[str, str], index: Path) -> str:
    environment = {"GIT_INDEX_FILE": str(index)}
    tree = await git.process.write(worktree, *there, "write-tree", "--missing-ok", environment=environment)
    return tree.decode().strip()


async def _entries(
    git: GitContext, worktree: Path, there: tuple[str, str], one: str, other: str, kinds: str
) -> Mapping[str, Entry]:
    """What ``one`` has, and ``other`` has otherwise or not."""
    shown = ("diff-tree", "--raw", "-r", "-z", "--no-abbrev", "--no-renames", f"--diff-filter={kinds}", one, other)
    output = os.fsdecode(await git.process.read(worktree, *there, *shown))
    fields = iter(output.split("\0")[:-1])
    return {next(fields): (record[1:].split()[0], record.split()[2]) for record in fields}


async def _theirs(
    git: GitContext,
    worktree: Path,
    there: tuple[str, str],
    folder: Path,
    trees: tuple[str, str, str],
    unreadable: Collection[str],
) -> Mapping[str, Entry]:
    """What is there and was neither laid out so nor is to be so, as far as that can be read."""
    now, start, wanted = trees
    otherwise = await _entries(git, worktree, there, now, wanted, "MDT")
    changed = await _entries(git, worktree, there, now, start, "MDT")
    found = {path: entry for path, entry in changed.items() if path in otherwise}
    closed = {path: entry for path, entry in otherwise.items() if _within(unreadable, path)}
    laid = await _entries(git, worktree, there, start, now, "M")
    suspects = [path for path in found if path in laid and _GITLINK not in {found[path][0], laid[path][0]}]
    if not suspects:
        return found | closed
    # Git may make other content of a file than that which it wrote it from, as of line ends: what counts is what it writes.
    environment = {"GIT_INDEX_FILE": str(folder / "start")}
    files = folder / "laid"
    await git.process.write(worktree, *there, "read-tree", start, environment=environment)
    await git.process.write(
        worktree,
        *(*there, "checkout-index", "-z", "--stdin", f"--prefix={files}/"),
        stdin=b"".join(os.fsencode(path) + b"\0" for path in suspects),
        environment=environment,
    )
    same = await git.compute(lambda: {path for path in suspects if _equal(worktree / path, files / path)})
    return {path: entry for path, entry in found.items() if path not in same} | closed


def _equal(one: Path, other: Path) -> bool:
    if one.is_symlink() or other.is_symlink() or not one.is_file() or not other.is_file():
        return False
    return (one.stat().st_mode & 0o100) == (other.stat().st_mode & 0o100) and filecmp.cmp(one, other, shallow=False)


async def _with(
    git: GitContext, worktree: Path, there: tuple[str, str], index: Path, wanted: str, theirs: Mapping[str, Entry]
) -> str:
    """The tree that is wanted, with what is theirs, whatever of it that takes the place of."""
    environment = {"GIT_INDEX_FILE": str(index)}
    await git.process.write(worktree, *there, "read-tree", wanted, environment=environment)
    lines = b"".join(os.fsencode(f"{mode} {name}\t{path}") + b"\0" for path, (mode, name) in theirs.items())
    await git.process.write(
        worktree, *there, "update-index", "--replace", "-z", "--index-info", stdin=lines, environment=environment
    )
    return await _written(git, worktree, there, index)
