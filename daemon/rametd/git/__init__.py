"""Repositories, worktrees, snapshots and diffs. `Git` is the entrance; what it gives back are frozen values.

The git binary does whatever reads or fills a working tree (it knows filters, sparse checkouts, submodules), libgit2 whatever is
in the object database.
"""

from rametd.git.checkpoints import KeptTree, Moved
from rametd.git.diff import Diff, DiffOptions, DiffStat, FileChange, Whitespace
from rametd.git.facade import Git
from rametd.git.inventory import Inventory
from rametd.git.kept import Kept
from rametd.git.landed import Landed, Target
from rametd.git.names import branch_name, check_branch_name
from rametd.git.removal import Removal
from rametd.git.repository import Base, Branch, Head, RepositoryInfo
from rametd.git.risk import Risk
from rametd.git.snapshot import Snapshot
from rametd.git.syncing import CutOff, Synced
from rametd.git.tracking import Changes, Tracker
from rametd.git.trash import TrashRecord
from rametd.git.upstream import RemoteBranch
from rametd.git.worktrees import Worktree

__all__ = [
    "Base",
    "Branch",
    "Changes",
    "CutOff",
    "Diff",
    "DiffOptions",
    "DiffStat",
    "FileChange",
    "Git",
    "Head",
    "Inventory",
    "Kept",
    "KeptTree",
    "Landed",
    "Moved",
    "RemoteBranch",
    "Removal",
    "RepositoryInfo",
    "Risk",
    "Snapshot",
    "Synced",
    "Target",
    "Tracker",
    "TrashRecord",
    "Whitespace",
    "Worktree",
    "branch_name",
    "check_branch_name",
]
