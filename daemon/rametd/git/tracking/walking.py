"""Walk the directories of a worktree from the top, with their file events."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

Skip = Callable[[str], bool]
"""Whether a directory, as a path in the worktree, is not to be looked into."""


@dataclass(slots=True)
class Happened:
    """Paths in the worktree that may have changed since the last time; ``appeared`` are directories that are new, or moved, with all in them.

    ``lost``: events were dropped, so that anything may have changed.
    """

    paths: set[str] = field(default_factory=set)
    appeared: set[str] = field(default_factory=set)
    lost: bool = False


@dataclass(slots=True)
class Found:
    """Files at and below a directory, a ``.git`` counting as one. ``partial``: some directory could not be looked into, or not be watched for sure."""

    files: set[str] = field(default_factory=set)
    partial: bool = False


def walk(root: str, start: str, skip: Skip, enter: Callable[[str], bool]) -> Found:
    """From ``start`` (a path in ``root``, "" for all of it). ``enter`` is called for each directory before it is listed, so that what is made in it
    afterwards is an event, and says whether it will be. What vanishes meanwhile is left out."""
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
        except OSError:  # closed to us, or too deep for a path: a scan says so
            found.partial = True
    return found


def identity(root: str) -> tuple[int, int] | None:
    """What another directory in this place would not have; None when there is none."""
    try:
        found = Path(root).stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def is_directory(place: Path) -> bool:
    """Itself, and not through a symbolic link."""
    return place.is_dir() and not place.is_symlink()


def is_file(place: Path) -> bool:
    """The same of a file."""
    return place.is_file() and not place.is_symlink()


def parents(path: str) -> list[str]:
    """The directories above a path, the topmost first: ``a/b/c`` gives ``a`` and ``a/b``."""
    return [path[:at] for at, letter in enumerate(path) if letter == "/"]


def are_text(paths: set[str]) -> bool:
    """Whether all are UTF-8, as libgit2 wants names to be."""
    try:
        "".join(paths).encode()
    except UnicodeEncodeError:
        return False
    return True


def within(path: str, directory: str) -> bool:
    return path == directory or path.startswith(f"{directory}/")


def is_below(path: str, directories: set[str] | frozenset[str]) -> bool:
    """Whether a path is one of the directories, or inside one."""
    return path in directories or any(parent in directories for parent in parents(path))
