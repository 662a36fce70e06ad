"""Repositories, worktrees, snapshots and diffs. `Git` is the entrance; what it gives back are frozen values.

The git binary does whatever reads or fills a working tree (it knows filters, sparse checkouts, submodules), libgit2 whatever is
in the object database.
"""

from rametd.git.diff import Diff, DiffStat, FileChange
from rametd.git.facade import Git
from rametd.git.names import branch_name, check_branch_name
from rametd.git.removal import Removal
from rametd.git.repository import Base, Branch, Head, RepositoryInfo
from rametd.git.risk import Risk
from rametd.git.snapshot import Snapshot
from rametd.git.trash import TrashRecord
from rametd.git.worktrees import Worktree

__all__ = [
    "Base",
    "Branch",
    "Diff",
    "DiffStat",
    "FileChange",
    "Git",
    "Head",
    "Removal",
    "RepositoryInfo",
    "Risk",
    "Snapshot",
    "TrashRecord",
    "Worktree",
    "branch_name",
    "check_branch_name",
]
