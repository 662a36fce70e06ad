"""Walk the directories of a worktree from the top, with their file events."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

Skip = Callable[[str], bool]
"""Return whether to skip a directory, a path relative to the worktree."""


@dataclass(slots=True)
class Happened:
    """Paths that may have changed since the last call. ``appeared``: new or moved directories, with
    their content.

    ``lost``: events were dropped, so that anything may have changed.
    """

    paths: set[str] = field(default_factory=set)
    appeared: set[str] = field(default_factory=set)
    lost: bool = False


@dataclass(slots=True)
class Found:
    """Files at and below a directory, including ``.git``. ``partial``: a directory could not be
    read, or cannot be watched reliably."""

    files: set[str] = field(default_factory=set)
    partial: bool = False


def walk(root: str, start: str, skip: Skip, enter: Callable[[str], bool]) -> Found:
    """Walk from ``start``, a path in ``root``, "" for all of it. Call ``enter`` for each directory
    before listing it: it sets a watch, and returns whether later files will cause events. Skip
    files that vanish meanwhile."""
    found = Found()
    waiting = [start]
    while waiting:
        directory = waiting.pop()
        try:
            found.partial |= not enter(directory)
            with os.scandir(f"{root}/{directory}") as entries:
                for entry in entries:
                    path = f"{directory}/{entry.name}" if directory else entry.name
                    if entry.name == ".git" or not entry.is_dir(follow_symlinks=False):
                        found.files.add(path)
                    elif not skip(path):
                        waiting.append(path)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:  # not readable, or its path is too long: a scan reports it
            found.partial = True
    return found


def identity(root: str) -> tuple[int, int] | None:
    """Return the device and inode of a directory, None if it is missing."""
    try:
        found = Path(root).stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def is_directory(place: Path) -> bool:
    """Return whether it is a directory, not a symbolic link."""
    return place.is_dir() and not place.is_symlink()


def is_file(place: Path) -> bool:
    """Return whether it is a file, not a symbolic link."""
    return place.is_file() and not place.is_symlink()


def parents(path: str) -> list[str]:
    """Return the directories above a path, the topmost first: ``a`` and ``a/b`` for ``a/b/c``."""
    return [path[:at] for at, letter in enumerate(path) if letter == "/"]


def are_text(paths: set[str]) -> bool:
    """Return whether all are UTF-8, as libgit2 requires of names."""
    try:
        "".join(paths).encode()
    except UnicodeEncodeError:
        return False
    return True


def within(path: str, directory: str) -> bool:
    return path == directory or path.startswith(f"{directory}/")


def is_below(path: str, directories: set[str] | frozenset[str]) -> bool:
    """Return whether a path is one of the directories, or inside one."""
    return path in directories or any(parent in directories for parent in parents(path))
