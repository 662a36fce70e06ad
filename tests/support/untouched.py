"""Compare a person's own checkout byte for byte: files, index, HEAD, stash, reflogs."""

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from fnmatch import fnmatch
from pathlib import Path

from tests.support.daemon import git

SHARED = ("ramet", "worktrees", "objects", "refs", "packed-refs", "logs", "index", "ORIG_HEAD", "FETCH_HEAD")
"""Entries of a git directory that are compared in another way, or are not the checkout's own."""


def fingerprint(checkout: Path) -> dict[str, str]:
    """Return everything in a checkout that belongs to its owner: all files, ignored ones too, with
    their modes and times of change; the index; HEAD, its branch's commit, the reflog of HEAD, the
    stash, configuration and hooks.

    The index is compared by its bytes: tests read it with ``GIT_OPTIONAL_LOCKS=0``, so that git
    does not refresh it.
    """
    found: dict[str, str] = {}
    for path in _everything(checkout):
        place = path.relative_to(checkout)
        found[str(place)] = _of(path, times=place.parts[0] != ".git")
    git_dir = Path(git(checkout, "rev-parse", "--absolute-git-dir"))
    index = git_dir / "index"
    found["index"] = hashlib.sha256(index.read_bytes()).hexdigest() if index.exists() else ""
    found["what the index says"] = git(checkout, "ls-files", "--stage", "-v")
    found["stash"] = git(checkout, "stash", "list")
    found["HEAD at"] = git(checkout, "rev-parse", "HEAD")
    reflog = git_dir / "logs" / "HEAD"
    found["reflog"] = reflog.read_text() if reflog.exists() else ""
    return found


def differences(
    before: Mapping[str, str], after: Mapping[str, str], *allowed: str
) -> dict[str, tuple[str | None, str | None]]:
    """Return each difference with both values; ``allowed`` are globs of names that may differ."""
    return {
        name: (before.get(name), after.get(name))
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name) and not any(fnmatch(name, each) for each in allowed)
    }


def is_checkout(value: object) -> bool:
    """Return whether a fixture's value is a person's own checkout: a repository's main worktree."""
    return isinstance(value, Path) and (value / ".git").is_dir()


def _everything(checkout: Path) -> Iterator[Path]:
    """Yield all paths except shared ones, whose directories are not read, as their entries change
    meanwhile."""
    for folder, folders, files in os.walk(checkout):
        here = Path(folder)
        if here == checkout / ".git":
            folders[:] = [name for name in folders if name not in SHARED]
            files = [name for name in files if name not in SHARED]
        yield from (here / name for name in (*folders, *files) if here / name != checkout / ".git")


def _of(path: Path, *, times: bool) -> str:
    status = path.lstat()
    if stat.S_ISLNK(status.st_mode):
        return f"link to {path.readlink()}"
    if not stat.S_ISREG(status.st_mode):
        return f"{status.st_mode:o}"
    return f"{status.st_mode:o} {status.st_mtime_ns if times else ''} {hashlib.sha256(path.read_bytes()).hexdigest()}"
