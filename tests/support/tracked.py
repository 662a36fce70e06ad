"""Compare the tree of a tracker with that of a scan."""

import ctypes
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rametd.git import Tracker
from rametd.git.context import GitContext
from rametd.git.file_trees import write_tree
from rametd.git.tracking import tracker as trackers
from rametd.git.tracking.events import InotifyEvents
from rametd.git.tracking.notify import NotifyEvents

from tests.support.repositories import Sample

SOURCES: dict[str, Callable[..., Any]] = {
    "inotify": lambda watches, worktree, git_dir, news: InotifyEvents(watches, worktree, news),
    "watchfiles": lambda watches, worktree, git_dir, news: NotifyEvents(worktree, git_dir, news),
}
"""Both sources of events; systems other than Linux have the second."""


class Scans:
    """Counts the scans of a tracker."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0

        async def counted(*arguments: Any) -> Any:
            self.count += 1
            return await write_tree(*arguments)

        monkeypatch.setattr(trackers, "write_tree", counted)


def exchange(one: Path, other: Path) -> None:
    """Exchange two files or directories, atomically if there is renameat2(2) with
    RENAME_EXCHANGE."""
    if not sys.platform.startswith("linux"):
        third = one.rename(one.with_name("between"))
        other.rename(one)
        third.rename(other)
        return
    libc = ctypes.CDLL(None, use_errno=True)
    here, at_once = -100, 2
    if libc.renameat2(here, os.fsencode(one), here, os.fsencode(other), at_once):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(one))


async def scanned(context: GitContext, sample: Sample) -> str:
    return (await write_tree(context, sample.path)).tree


async def same(tracker: Tracker, context: GitContext, sample: Sample, after: str = "") -> str:
    """Check that tracker and scan return the same tree; return it."""
    made, right = (await tracker.tree()).tree, await scanned(context, sample)
    difference = "" if made == right else sample.git("diff-tree", "-r", "--name-status", right, made)
    assert made == right, f"{after}: from the scan to the tracker:\n{difference}"
    return made
