"""Marks in an index that no tree can hold: files that git was told not to look at, and new ones that it was only told of (`git add -N`)."""

import os
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rametd.git.context import GitContext
from rametd.git.obstacles import named

UNCHANGED: Final = "unchanged"
SKIPPED: Final = "skipped"
INTENDED: Final = "intended"
_OPTIONS: Final = {UNCHANGED: "--assume-unchanged", SKIPPED: "--skip-worktree"}


@dataclass(frozen=True, slots=True)
class Mark:
    """``kind`` is one of the above; ``path`` relative to the worktree."""

    kind: str
    path: str


async def read(git: GitContext, worktree: Path, there: tuple[str, str]) -> tuple[Mark, ...]:
    """What is marked. What a sparse checkout leaves out is not: that is the worktree's own pattern, and comes with it."""
    listed = os.fsdecode(await git.process.read(worktree, *there, "ls-files", "-v", "-z"))
    sparse = await git.process.run(worktree, *there, "config", "--type=bool", "--get", "core.sparseCheckout")
    found: list[Mark] = []
    for record in listed.split("\0")[:-1]:
        tag, path = record[0], record[2:]
        found += [Mark(UNCHANGED, path)] if tag.islower() else []
        found += [Mark(SKIPPED, path)] if tag in "Ss" and sparse.stdout.strip() != b"true" else []
    added = os.fsdecode(
        await git.process.read(
            worktree, *there, "diff-files", "--name-only", "--diff-filter=A", "--ignore-submodules=all", "-z"
        )
    )
    return (*found, *(Mark(INTENDED, path) for path in added.split("\0")[:-1]))


async def put_back(git: GitContext, worktree: Path, there: tuple[str, str], marks: Collection[Mark]) -> list[str]:
    """Mark the same again; in words, what cannot be."""
    if not marks:
        return []
    listed = os.fsdecode(await git.process.read(worktree, *there, "ls-files", "-z")).split("\0")
    tracked = set(listed[:-1])
    left: list[str] = []
    for kind, option in _OPTIONS.items():
        wanted = [mark.path for mark in marks if mark.kind == kind]
        left += [path for path in wanted if path not in tracked]
        if paths := [path for path in wanted if path in tracked]:
            await git.process.write(worktree, *there, "update-index", option, "-z", "--stdin", stdin=_lines(paths))
    new = [mark.path for mark in marks if mark.kind == INTENDED and mark.path not in tracked]
    there_still = await git.compute(lambda: [path for path in new if _is_file(worktree / path)])
    left += [path for path in new if path not in there_still]
    if there_still:
        add = ("add", "--intent-to-add", "--force", "--sparse", "--pathspec-from-file=-", "--pathspec-file-nul")
        await git.process.write(worktree, *there, "--literal-pathspecs", *add, stdin=_lines(there_still))
    return [f"marks of the index cannot be again on what is not there: {named(left)}"] if left else []


def _lines(paths: Collection[str]) -> bytes:
    return b"".join(os.fsencode(path) + b"\0" for path in paths)


def _is_file(path: Path) -> bool:
    return path.is_symlink() or path.is_file()
