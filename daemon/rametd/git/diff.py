"""Diffs between a commit and a worktree, or between two commits: files, counts, and a patch of
bounded size.

A worktree is compared by the tree of its files (`file_trees.current_tree`), which includes
untracked files and applies filters. `git diff-tree` compares the two trees. It skips equal subtrees
and runs in another process: 8 ms for eleven changes among 40,000 files. libgit2 walks all of them
(38 ms) and holds the interpreter's lock, so it blocks the event loop even from a thread.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

import pygit2

from rametd.domain.errors import RefNotFoundError
from rametd.git.context import GitContext
from rametd.git.file_trees import current_tree
from rametd.git.process import at
from rametd.git.repository import RepositoryInfo, open_repository

MAX_PATCH: Final = 1 << 20
"""Default maximum size of a patch in bytes."""
MAX_FILE: Final = 4 << 20
"""Maximum size in bytes of a file whose lines are shown and counted."""

_STATUS: Final = {"A": "added", "D": "deleted", "M": "modified", "R": "renamed", "C": "copied", "T": "typechange"}
_DIFF: Final = (
    "-c",
    f"core.bigFileThreshold={MAX_FILE}",
    "diff-tree",
    "-r",
    "--no-ext-diff",
    "--no-textconv",
    "--full-index",
)


class Whitespace(StrEnum):
    """Differences of white space to ignore, as options of git."""

    SHOW = ""
    IGNORE_AT_EOL = "--ignore-space-at-eol"
    IGNORE_CHANGE = "--ignore-space-change"
    IGNORE_ALL = "--ignore-all-space"


@dataclass(frozen=True, slots=True)
class DiffOptions:
    """``paths``: only files at or below these. Files with only ignored differences are omitted.

    ``binary``: the patch has the contents of binary files, so that it can be applied without their
    objects. Without it, the patch names them at its end, as it always names files that are too
    large.
    """

    whitespace: Whitespace = Whitespace.SHOW
    paths: tuple[str, ...] = ()
    binary: bool = False
    context: int = 3
    """Unchanged lines around each change."""


EVERYTHING: Final = DiffOptions()


@dataclass(frozen=True, slots=True)
class FileChange:
    """One changed file. ``status``: added, deleted, modified, renamed, copied, typechange. Counts
    are lines, 0 if they were not counted. A ``too_large`` file is named and not shown, like a
    binary one.
    """

    path: str
    old_path: str | None
    status: str
    additions: int
    deletions: int
    binary: bool
    submodule: bool
    too_large: bool
    blobs: tuple[str, str] = field(default=("", ""), compare=False)
    """Ids of the old content and of the new."""


@dataclass(frozen=True, slots=True)
class Diff:
    """``patch`` is None if it was not requested. ``truncated``: the patch was ``cut`` at the end of
    a line, or omits a file as too large. ``skipped``: git's message about each unreadable file of
    the worktree. ``new`` is the newer tree.
    """

    files: tuple[FileChange, ...]
    patch: bytes | None
    truncated: bool
    new: str
    skipped: tuple[str, ...] = ()
    cut: bool = False


@dataclass(frozen=True, slots=True)
class File:
    """A file of a commit or tree: its id and size, and its content unless it is too large."""

    blob: str
    size: int
    data: bytes | None


@dataclass(frozen=True, slots=True)
class _Trees:
    """Two trees, and the directory and options with which to run git there."""

    where: Path
    options: tuple[str, ...]
    old: str
    new: str
    skipped: tuple[str, ...] = ()


async def _with_worktree(git: GitContext, worktree: Path, against: str) -> _Trees:
    git_dir = await git.verified(worktree, None)
    old = await git.compute(_tree, git_dir, against)
    written = await current_tree(git, worktree, git_dir)
    return _Trees(worktree, at(git_dir, worktree), old, written.tree, written.skipped)


async def _diff(git: GitContext, trees: _Trees, *, patch: bool, max_patch: int, options: DiffOptions) -> Diff:
    if trees.old == trees.new:
        return Diff((), b"" if patch else None, truncated=False, new=trees.new, skipped=trees.skipped)
    before = (*trees.options, *_DIFF, "--find-renames")
    if options.whitespace:
        before = (*before, options.whitespace.value)
    what = (trees.old, trees.new, "--", *(f":(literal){path}" for path in options.paths))
    summary = (*before, "--raw", "--numstat", "-z", *what)
    fields = iter(os.fsdecode(await git.process.read(trees.where, *summary)).split("\0")[:-1])
    files = await git.compute(lambda: tuple(_changes(open_repository(trees.where), fields)))
    if not patch:
        return Diff(files, None, truncated=False, new=trees.new, skipped=trees.skipped)
    large = {name for file in files if file.too_large for name in (file.path, file.old_path) if name}
    before = (*before, f"--unified={options.context}")
    parts = [(*before, "--patch", *what)]
    if options.binary and not large:
        parts = [(*before, "--binary", *what)]
    elif options.binary:
        # A binary patch would contain files above git's threshold completely.
        parts = [
            (*before, "--binary", *what, *(f":(exclude,literal){path}" for path in sorted(large))),
            (*before, "--patch", trees.old, trees.new, "--", *(f":(literal){path}" for path in sorted(large))),
        ]
    text, cut = b"", False
    for part in parts:
        if not cut:
            more, cut = await git.process.read_up_to(max_patch - len(text), trees.where, *part)
            text += more
    if cut:
        text = text[: text.rfind(b"\n") + 1]
    return Diff(files, text, truncated=cut or bool(large), new=trees.new, skipped=trees.skipped, cut=cut)


@dataclass(frozen=True, slots=True)
class _Raw:
    modes: tuple[str, str]
    objects: tuple[str, str]
    status: str
    old_path: str | None


def _changes(repository: pygit2.Repository, fields: Iterator[str]) -> Iterator[FileChange]:
    """Read `--raw --numstat -z`: all raw entries, then all counts, each with one path, or two for a
    rename or a copy."""
    raw: dict[str, _Raw] = {}
    for item in fields:
        if item.startswith(":"):
            old_mode, new_mode, old, new, status = item[1:].split(" ")
            first = next(fields)
            path, source = (next(fields), first) if status[0] in "RC" else (first, None)
            raw[path] = _Raw((old_mode, new_mode), (old, new), status[0], source)
            continue
        additions, deletions, path = item.split("\t", 2)
        if not path:
            _, path = next(fields), next(fields)
        entry = raw[path]
        uncounted = additions == "-"
        too_large = uncounted and _size(repository, entry) > MAX_FILE
        yield FileChange(
            path=path,
            old_path=entry.old_path,
            status=_STATUS.get(entry.status, "modified"),
            additions=0 if uncounted else int(additions),
            deletions=0 if uncounted else int(deletions),
            binary=uncounted and not too_large,
            submodule="160000" in entry.modes,
            too_large=too_large,
            blobs=entry.objects,
        )


def _size(repository: pygit2.Repository, entry: _Raw) -> int:
    """Bytes of the larger side, from the objects' headers."""
    sides = [pygit2.Oid(hex=name) for name in entry.objects]
    return max((repository.odb.read_header(oid)[1] for oid in sides if oid in repository.odb), default=0)


def file_of(repo: RepositoryInfo, tree: str, path: str, most: int) -> File | None:
    """Return the file at a path of a commit or tree, a symbolic link as its target; None if
    missing. Content of at most ``most`` bytes."""
    repository = open_repository(repo.common_dir)
    try:
        entry = repository[tree].peel(pygit2.Tree)[path]
    except KeyError:
        return None
    if not isinstance(entry, pygit2.Blob):
        return None
    size = repository.odb.read_header(entry.id)[1]
    return File(str(entry.id), size, entry.data if size <= most else None)


def _tree(place: Path, name: str) -> str:
    try:
        return str(open_repository(place).revparse_single(name).peel(pygit2.Tree).id)
    except (KeyError, ValueError, pygit2.GitError) as error:
        raise RefNotFoundError(f"{name} names no commit here", hint="it may have been garbage collected") from error


class Diffs:
    """Differences between commits, trees and the files of a worktree. Every method may raise the
    errors of `Git`."""

    def __init__(self, git: GitContext) -> None:
        self._git = git
        self.file = git.threaded(file_of)

    async def tree(self, worktree: Path) -> str:
        """Return the worktree's files as a tree object, with untracked and without ignored ones."""
        return (await current_tree(self._git, worktree)).tree

    async def of_worktree(
        self,
        worktree: Path,
        against: str,
        *,
        patch: bool = True,
        max_patch: int = MAX_PATCH,
        options: DiffOptions = EVERYTHING,
    ) -> Diff:
        """Compare ``against``, a commit or tree, with the present files, untracked ones included.
        ``max_patch`` is in bytes."""
        trees = await _with_worktree(self._git, worktree, against)
        return await _diff(self._git, trees, patch=patch, max_patch=max_patch, options=options)

    async def between(
        self,
        repo: RepositoryInfo,
        old: str,
        new: str,
        *,
        patch: bool = True,
        max_patch: int = MAX_PATCH,
        options: DiffOptions = EVERYTHING,
    ) -> Diff:
        """Compare two commits or trees, for a session whose worktree is gone."""
        git = self._git
        trees = [await git.compute(_tree, repo.common_dir, name) for name in (old, new)]
        return await _diff(
            git, _Trees(repo.common_dir, (), trees[0], trees[1]), patch=patch, max_patch=max_patch, options=options
        )

    async def changed_files(self, worktree: Path, against: str) -> tuple[str, ...]:
        """Return the differing paths, sorted, without renames and counts. This is the fastest
        comparison."""
        git = self._git
        trees = await _with_worktree(git, worktree, against)
        output = await git.process.read(trees.where, *trees.options, *_DIFF, "--name-only", "-z", trees.old, trees.new)
        return tuple(sorted(os.fsdecode(output).split("\0")[:-1]))
