"""Files that git cannot read or store: its messages, and the path of each.

A failing required clean filter, or a text in another encoding than its attributes name, ends `git
add`; all other files are then added without that file. About unreadable directories git only warns.
"""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rametd.domain.text import utf8
from rametd.git.context import GitContext
from rametd.git.process import Completed, at, failed

_AS_IS: Final = (
    *("-c", "core.splitIndex=false"),  # a shared index would be written next to the user's
    *("-c", "core.safecrlf=false"),  # a warning for people; as an error it would leave the file out
    *("-c", "advice.addEmbeddedRepo=false"),
)
ADD_ALL: Final = (*_AS_IS, "add", "--all", "--sparse", "--ignore-errors")
"""Add everything that is not ignored to a private index."""

_UNOPENED: Final = "warning: could not open directory "
_VANISHED: Final = "No such file or directory"
_REFUSED: Final = (
    re.compile(r"^fatal: (?P<words>(?P<path>.+): clean filter '(?P<driver>.+)' failed)$", re.MULTILINE),
    re.compile(r"^fatal: (?P<words>failed to encode '(?P<path>.+)' from .+ to .+)$", re.MULTILINE),
    re.compile(r"^fatal: (?P<words>BOM is \w+ in '(?P<path>.+)' if encoded as .+)$", re.MULTILINE),
)
"""Messages with which git ends because of one file."""
_PLACES: Final = (
    re.compile(r"could not open directory '(.+)/': "),
    re.compile(r"(.+): clean filter '.+' failed"),
    re.compile(r"failed to encode '(.+)' from .+ to .+"),
    re.compile(r"BOM is \w+ in '(.+)' if encoded as .+"),
    re.compile(r'open\("(.+)"\): '),
    re.compile(r"unable to index file '(.+)'"),
    re.compile(r"'(.+)/' does not have a commit checked out"),
)
_UNBORN: Final = "' does not have a commit checked out"
_ONE_BY_ONE: Final = 4
"""Maximum number of files of a broken filter to find by trying; each try walks through the tree
again."""


@dataclass(frozen=True, slots=True)
class Unread:
    """A message of git, and the path that it names, relative to the worktree, or None."""

    words: str
    place: str | None


def is_unborn(words: str) -> bool:
    """Return whether git skipped a nested repository because it has no commit yet."""
    return words.endswith(_UNBORN)


def parse_unread(words: str) -> Unread:
    """Parse a message of git."""
    found = next((match for pattern in _PLACES if (match := pattern.match(words))), None)
    return Unread(words, found[1] if found is not None else None)


async def hidden(git: GitContext, worktree: Path, there: tuple[str, str], index: Path) -> list[bytes]:
    """Return files that git would skip, as their entries are marked assume-unchanged or
    skip-worktree: people mark files that they change for themselves, and such changes are work
    too.

    A missing file was deleted if it is only marked assume-unchanged. Marked skip-worktree, it is
    left out by a sparse checkout.
    """
    environment = {"GIT_INDEX_FILE": str(index)}
    listed = await git.process.read(worktree, *there, "ls-files", "-v", "-z", environment=environment)
    marked = [
        (record[2:], record[:1] not in {b"S", b"s"})
        for record in listed.split(b"\0")
        if record[:1] == b"S" or record[:1].islower()
    ]
    return await git.compute(
        lambda: [path for path, counts in marked if counts or os.path.lexists(worktree / os.fsdecode(path))]
    )


async def unhide(git: GitContext, worktree: Path, there: tuple[str, str], index: Path, paths: Sequence[bytes]) -> None:
    """Remove these marks in a private index."""
    if not paths:
        return
    environment = {"GIT_INDEX_FILE": str(index)}
    stdin = b"".join(path + b"\0" for path in paths)
    for mark in ("--no-assume-unchanged", "--no-skip-worktree"):  # git takes one at a time
        arguments = (*_AS_IS, "update-index", mark, "-z", "--stdin")
        await git.process.write(worktree, *there, *arguments, stdin=stdin, environment=environment)


async def add_all(git: GitContext, worktree: Path, git_dir: Path, index: Path) -> tuple[str, ...]:
    """Add all readable files to a private index; return git's messages about the others. Raise
    GitFailedError, GitBusyError."""
    there = at(git_dir, worktree)
    environment = {"GIT_INDEX_FILE": str(index)}
    await unhide(git, worktree, there, index, await hidden(git, worktree, there, index))
    left_out: dict[str, str] = {}
    drivers: list[str] = []

    async def add() -> Completed:
        if not left_out:
            return await git.process.run(worktree, *there, *ADD_ALL, environment=environment)
        but = (":/", *(f":(top,exclude,literal){path}" for path in left_out))
        stdin = b"".join(os.fsencode(each) + b"\0" for each in but)
        paths = ("--pathspec-from-file=-", "--pathspec-file-nul")
        return await git.process.run(worktree, *there, *ADD_ALL, *paths, stdin=stdin, environment=environment)

    while True:
        done = await add()
        if done.returncode != 0 or unopened(done):  # a file that vanished during the walk is gone the second time
            done = await add()
        refused = _refused(done)
        if refused is None or refused["path"] in left_out:  # the second: git quotes the name
            return (*left_out.values(), *_skipped(done))
        left_out[refused["path"]] = utf8(refused["words"])
        if driver := refused.groupdict().get("driver"):
            drivers.append(driver)
            if drivers.count(driver) == _ONE_BY_ONE:
                for path in await _filtered(git, worktree, there, driver, environment):
                    left_out.setdefault(path, f"{path}: clean filter '{driver}' failed")


async def _filtered(
    git: GitContext, worktree: Path, there: tuple[str, str], driver: str, environment: dict[str, str]
) -> list[str]:
    """Return the changed and new files that go through a filter."""
    changed = await git.process.read(worktree, *there, "diff-files", "--name-only", "-z", environment=environment)
    new = await git.process.read(
        worktree, *there, "ls-files", "--others", "--exclude-standard", "-z", environment=environment
    )
    asked = ("check-attr", "-z", "--stdin", "filter")
    output = await git.process.read(worktree, *there, *asked, stdin=changed + new, environment=environment)
    fields = output.split(b"\0")
    return [
        os.fsdecode(path) for path, value in zip(fields[::3], fields[2::3], strict=False) if value == driver.encode()
    ]


def _refused(done: Completed) -> re.Match[str] | None:
    if done.returncode == 0:
        return None
    text = os.fsdecode(done.stderr)
    return next((match for pattern in _REFUSED if (match := pattern.search(text))), None)


def failed_filter(done: Completed) -> str | None:
    """Return the filter because of which git ended, or None."""
    refused = _refused(done)
    return refused.groupdict().get("driver") if refused is not None else None


def unopened(done: Completed) -> tuple[str, ...]:
    """Return git's warnings about directories that it may not read; it skips their content."""
    lines = done.stderr.decode(errors="replace").splitlines()
    found = (line for line in lines if line.startswith(_UNOPENED) and not line.endswith(_VANISHED))
    return tuple(dict.fromkeys(line.removeprefix("warning: ") for line in found))


def _skipped(done: Completed) -> tuple[str, ...]:
    closed = unopened(done)
    if done.returncode == 0:
        return closed
    lines = done.stderr.decode(errors="replace").splitlines()
    errors = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    if not errors or any(line.startswith("fatal:") for line in lines):
        raise failed(done, ("snapshot",))
    return tuple(dict.fromkeys((*errors, *closed)))
