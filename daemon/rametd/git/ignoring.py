"""Whether what comes into a worktree would be ignored there."""

import os
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from rametd.git.context import GitContext
from rametd.git.process import failed


async def ignored_among(git: GitContext, worktree: Path, paths: Sequence[str]) -> frozenset[str]:
    """See `Git.worktrees.ignored_among`."""
    git_dir = await git.verified(worktree, None)
    there = (f"--git-dir={git_dir}", f"--work-tree={worktree}")
    stdin = b"".join(os.fsencode(path) + b"\0" for path in paths)
    # With the index it would end at the first path that lies in a submodule.
    asked = ("check-ignore", "--no-index", "-z", "--stdin")
    done = await git.process.run(worktree, *there, *asked, stdin=stdin)
    if done.returncode not in (0, 1):
        raise failed(done, asked)
    ignored = os.fsdecode(done.stdout).split("\0")[:-1]
    if not ignored:
        return frozenset()
    listed = await git.process.read(worktree, *there, "ls-files", "-z")

    def untracked() -> frozenset[str]:
        tracked = set(os.fsdecode(listed).split("\0"))
        return frozenset(path for path in ignored if tracked.isdisjoint(_and_above(path)))

    return await git.compute(untracked)


async def tracked_among(git: GitContext, worktree: Path, paths: Sequence[str]) -> frozenset[str]:
    """See `Git.worktrees.tracked_among`."""
    if not paths:
        return frozenset()
    listed = await git.process.read(worktree, "--literal-pathspecs", "ls-files", "-z", "--", *paths)
    return frozenset(os.fsdecode(listed).split("\0")) & frozenset(paths)


def _and_above(path: str) -> list[str]:
    pure = PurePosixPath(path)
    return [str(pure), *map(str, pure.parents)]
