"""Files that git cannot read or store, kept as they are in a directory aside, and brought back from there.

The whole worktree is renamed there first, in one step and without a look into what is closed to us, and then thinned out. What a kill leaves
is whole. All functions block.
"""

import contextlib
import filecmp
import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Final

from rametd.git.removal import delete_tree

PART: Final = "part"
"""Beside the directories of a worktree that are kept aside: a file that is being copied back from one of them."""


def thin_out(folder: Path, places: Sequence[str]) -> None:
    """Delete everything but ``places`` from a worktree that was moved aside; all of it stays where one of them is not there.

    Its ``.git`` goes last: where that is there, the directory is whole. Raises GitFailedError, OSError.
    """
    if not places or not all(os.path.lexists(folder / place) for place in places):
        return
    wanted = set(places)
    ways = {str(parent) for place in places for parent in PurePosixPath(place).parents}

    def clear(directory: str) -> None:
        for entry in sorted((folder / directory).iterdir(), key=lambda each: each.name == ".git"):
            path = f"{directory}/{entry.name}" if directory else entry.name
            if path in wanted:
                continue
            if path in ways:
                clear(path)
            elif entry.is_dir() and not entry.is_symlink():
                delete_tree(entry)
            else:
                entry.unlink()

    clear("")


def is_whole(folder: Path) -> bool:
    """Whether everything of the worktree is there rather than what git could not store alone."""
    return os.path.lexists(folder / ".git")


def put_back(folder: Path, worktree: Path, *, instead: bool = False) -> list[str]:
    """Copy to the worktree whatever of a directory aside is not there; a line for each thing that is only in the directory then.

    ``instead``: of a directory that is whole, also what is otherwise there, which a commit stands in for. What a kill cuts short lies beside the
    directory, and is nobody's file.
    """
    left: list[str] = []
    replace = instead and is_whole(folder)
    part = folder.with_name(PART)
    part.unlink(missing_ok=True)

    def bring(place: str) -> None:
        source, target = folder / place, worktree / place
        try:
            if not source.is_symlink() and source.is_dir():
                if target.is_symlink() or (target.exists() and not target.is_dir()):
                    left.append(f"{place}: something else is there")
                    return
                with _opened(source, 0o500):
                    made = not target.exists()
                    target.mkdir(exist_ok=True)
                    for each in sorted(source.iterdir()):
                        bring(f"{place}/{each.name}")
                if made:
                    shutil.copystat(source, target)
            elif os.path.lexists(target) and _same(source, target):
                return
            elif os.path.lexists(target) and not (replace and not target.is_dir()):
                left.append(f"{place}: another version is there")
            elif source.is_symlink() or source.is_file():
                with _opened(source, 0o400):
                    _copy(source, part, target)
        except OSError as error:
            left.append(f"{place}: {error.strerror}")

    for each in sorted(folder.iterdir()):
        if each.name != ".git":
            bring(each.name)
    return left


@contextlib.contextmanager
def _opened(path: Path, wanted: int) -> Iterator[None]:
    """Have a file or directory of ours be readable for a while. Raises PermissionError for one of somebody else's."""
    mode = stat.S_IMODE(path.lstat().st_mode)
    if path.is_symlink() or mode & wanted == wanted:
        yield
        return
    path.chmod(mode | wanted)
    try:
        yield
    finally:
        path.chmod(mode)


def _copy(source: Path, part: Path, target: Path) -> None:
    """With its mode, and whole or not at all: it is written to ``part`` first, for a kill may come between."""
    if not source.is_symlink():  # making a link never takes another one's place
        os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    try:
        shutil.copy2(source, part, follow_symlinks=False)
        part.rename(target)
    except OSError:
        part.unlink(missing_ok=True)
        raise


def _same(one: Path, other: Path) -> bool:
    if one.is_symlink() or other.is_symlink():
        return one.is_symlink() and other.is_symlink() and one.readlink() == other.readlink()
    return other.is_file() and filecmp.cmp(one, other, shallow=False)
