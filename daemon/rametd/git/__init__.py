"""Repositories, worktrees, snapshots and diffs. `Git` is the entrance; what it gives back are frozen values.

The git binary does whatever reads or fills a working tree (it knows filters, sparse checkouts, submodules), libgit2 whatever is
in the object database.
"""

from rametd.git.diff import Diff, DiffOptions, DiffStat, FileChange, Whitespace
from rametd.git.facade import Git
from rametd.git.inventory import Inventory
from rametd.git.landed import Landed, Target
from rametd.git.names import branch_name, check_branch_name
from rametd.git.removal import Removal
from rametd.git.repository import Base, Branch, Head, RepositoryInfo
from rametd.git.risk import Risk
from rametd.git.snapshots.capture import Depth
from rametd.git.snapshots.model import ARCHIVE, CHECKPOINTS, COMMITS, TRASH, Snapshot
from rametd.git.snapshots.restore import Moved
from rametd.git.snapshots.shelf import Shelved
from rametd.git.snapshots.snapshots import Numbered
from rametd.git.syncing import CutOff, Synced
from rametd.git.tracking import Changes, Tracker
from rametd.git.upstream import RemoteBranch
from rametd.git.worktrees import Worktree

__all__ = [
    "ARCHIVE",
    "CHECKPOINTS",
    "COMMITS",
    "TRASH",
    "Base",
    "Branch",
    "Changes",
    "CutOff",
    "Depth",
    "Diff",
    "DiffOptions",
    "DiffStat",
    "FileChange",
    "Git",
    "Head",
    "Inventory",
    "Landed",
    "Moved",
    "Numbered",
    "RemoteBranch",
    "Removal",
    "RepositoryInfo",
    "Risk",
    "Shelved",
    "Snapshot",
    "Synced",
    "Target",
    "Tracker",
    "Whitespace",
    "Worktree",
    "branch_name",
    "check_branch_name",
]
