"""Take a snapshot of a worktree. All records of a worktree's state use this module. The person's
index, HEAD, branches and stash stay unchanged."""

import os
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from enum import IntEnum
from pathlib import Path
from typing import Any, Final

import pygit2

from rametd.domain.errors import GitFailedError
from rametd.git.context import GitContext
from rametd.git.file_trees import current_tree, private_index, write_tree
from rametd.git.inside import git_dir_at
from rametd.git.loose import write_loose
from rametd.git.process import at
from rametd.git.repository import Head, common_dir, head_of, open_repository
from rametd.git.snapshots import nested
from rametd.git.snapshots.model import Nested, Snapshot, pin, pin_others, point, write

_HASH: Final = re.compile(rb"(?<![0-9a-f])[0-9a-f]{40}(?![0-9a-f])")
_LARGEST: Final = 1 << 22
"""Maximum number of bytes of a file in a git directory to search for commit ids."""


class Depth(IntEnum):
    """Content of a snapshot besides HEAD and the branch."""

    FILES = 0  # the files, including those of nested repositories
    STAGED = 1  # and staged content
    FULL = 2  # and all objects that only the worktree's git directory reaches: conflicts, autostashes, commits of its reflog


async def capture(
    git: GitContext,
    worktree: Path,
    git_dir: Path | None = None,
    *,
    ref: str = "",
    owner: str = "",
    depth: Depth = Depth.FILES,
    facts: Mapping[str, Any] | None = None,
    tree: str | None = None,
    apart: bool = False,
    head: Head | None = None,
    inner: Collection[Path] = (),
) -> Snapshot:
    """Record a worktree under ``ref``. ``tree``: its files, if they are known already.

    ``git_dir`` need not be registered; without it the worktree must be. ``owner``: the session
    whose refs pin the commits that the snapshot needs. ``apart``: omit nested worktrees of the same
    repository, which are other work. Raise WorktreeChangedError, GitFailedError, GitBusyError.
    """
    git_dir = git_dir or await git.verified(worktree, None)
    skipped: tuple[str, ...] = ()
    plain = False
    if tree is None:
        written = await (
            write_tree(git, worktree, git_dir) if depth is Depth.FULL else current_tree(git, worktree, git_dir)
        )
        tree, skipped, plain = written.tree, written.skipped, written.plain
    found: tuple[Nested, ...] = ()
    if not plain:
        found, skipped = await nested.capture(git, worktree, git_dir, tree, skipped)
    index = await staged_tree(git, git_dir) if depth >= Depth.STAGED else ""
    unmerged = await unmerged_blobs(git, git_dir) if depth is Depth.FULL else []
    staged_inside = await inner_objects(git, inner)
    files, staged = tree, index

    def store() -> Snapshot:
        repository = open_repository(git_dir)
        position = head or head_of(repository)
        # Raises KeyError if git has lost the commit of HEAD: no ref may pin it.
        same = position.commit is not None and staged == str(repository[position.commit].peel(pygit2.Tree).id)
        recorded = [each for each in found if not (apart and _is_worktree(git_dir, worktree / each.place))]
        made = write(
            git_dir,
            files,
            head=position.commit or "",
            branch=position.branch or "",
            index="" if same or position.commit is None else staged,
            unmerged=[*unmerged, *staged_inside[1]],
            inner=staged_inside[0],
            nested=recorded,
            skipped=skipped,
            facts=facts,
        )
        if owner:
            if position.commit is not None:
                pin(repository, git_dir, owner, position.commit)
            pin_others(git_dir, owner, [each.head for each in recorded if each.own])
        if ref:
            point(git_dir, ref, made.id)
        return made

    return await git.compute(store)


def _is_worktree(git_dir: Path, directory: Path) -> bool:
    inner = git_dir_at(directory)
    return inner is not None and inner.parent == common_dir(git_dir) / "worktrees"


async def staged_tree(git: GitContext, git_dir: Path) -> str:
    """Return the staged content as a tree, without paths in conflict; reads no file of the
    worktree."""
    there = at(git_dir, git_dir)
    async with private_index(git, git_dir) as index:  # private, because `write-tree` stores its tree cache in the index
        environment = {"GIT_INDEX_FILE": str(index)}
        output = await git.process.read(git_dir, *there, "ls-files", "--unmerged", "-z", environment=environment)
        conflicts = dict.fromkeys(record.partition(b"\t")[2] for record in output.split(b"\0") if record)
        if conflicts:
            remove = ("update-index", "-z", "--force-remove", "--stdin")
            stdin = b"".join(path + b"\0" for path in conflicts)
            await git.process.write(git_dir, *there, *remove, stdin=stdin, environment=environment)
        tree = await git.process.write(git_dir, *there, "write-tree", "--missing-ok", environment=environment)
    return tree.decode().strip()


async def unmerged_blobs(git: GitContext, git_dir: Path) -> list[str]:
    """Return the blobs of paths in conflict, and the empty blob, which the index has for files
    after `git add -N`."""
    if not await git.compute((git_dir / "index").is_file):
        return []
    output = await git.process.read(git_dir, f"--git-dir={git_dir}", "ls-files", "--unmerged", "-z")
    fields = [record.split(b" ") for record in output.split(b"\0") if record]
    empty = await git.compute(lambda: write_loose(common_dir(git_dir) / "objects", "blob", b""))
    return sorted({empty, *(name.decode() for mode, name, _ in fields if mode != b"160000")})


async def inner_objects(git: GitContext, entries: Collection[Path]) -> tuple[list[str], list[str]]:
    """Return staged trees and blobs of conflicts from the git directories of nested worktrees;
    nothing from an unreadable index."""
    trees: list[str] = []
    blobs: list[str] = []
    for entry in entries:
        with suppress(GitFailedError):
            trees.append(await staged_tree(git, entry))
            blobs += await unmerged_blobs(git, entry)
    return list(dict.fromkeys(trees)), blobs


async def pin_all(git: GitContext, git_dir: Path, owner: str) -> None:
    """Pin every commit that a worktree's git directory names and no branch, remote branch or tag
    reaches: a detached HEAD, those of an unfinished merge or rebase, an autostash, the reflog."""

    def named() -> list[str]:
        repository = open_repository(git_dir)
        return [name for name in dict.fromkeys(_names(git_dir)) if _is_commit(repository, name)]

    names = await git.compute(named)
    if not names:
        return
    listing = ("rev-list", "--parents", "--stdin", "--not", "--branches", "--remotes", "--tags")
    stdin = "\n".join([*names, ""]).encode()
    done = await git.process.run(git_dir, f"--git-dir={git_dir}", *listing, stdin=stdin)
    lines = [line.split() for line in done.stdout.decode().splitlines()]
    if done.returncode != 0:  # a branch whose commit git has lost
        lines = [[name] for name in names]
    reached = {parent for _, *parents in lines for parent in parents}
    await git.compute(pin_others, git_dir, owner, [commit for commit, *_ in lines if commit not in reached])


def _names(git_dir: Path) -> Iterator[str]:
    """Return all texts that look like object ids in the files of a git directory, except those of
    submodules."""
    for folder, folders, files in os.walk(git_dir):
        if Path(folder) == git_dir and "modules" in folders:
            folders.remove("modules")
        for file in files:
            place = Path(folder, file)
            if file == "index" or not place.is_file() or place.stat().st_size > _LARGEST:
                continue
            yield from (name.decode() for name in _HASH.findall(place.read_bytes()))


def _is_commit(repository: pygit2.Repository, name: str) -> bool:
    return name in repository and isinstance(repository[name], pygit2.Commit)
