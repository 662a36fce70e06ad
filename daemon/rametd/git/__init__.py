"""Repositories, worktrees, snapshots and diffs. `Git` is the entry point, and returns frozen
values.

The git binary reads and fills working trees, because it knows filters, sparse checkouts and
submodules. libgit2 works on the object database.
"""

from rametd.git.commits import Tree
from rametd.git.diff import EVERYTHING, MAX_PATCH, Diff, DiffOptions, File, FileChange, Whitespace
from rametd.git.git import Git
from rametd.git.inventory import Inventory
from rametd.git.landed import Landed, Target
from rametd.git.landing import Combined, Commit, Conflict, LandingTree
from rametd.git.names import branch_name, check_branch_name, short_slug, slug
from rametd.git.prediction import Matrix, Pair, Work
from rametd.git.registrations import (
    OF_QUEUES,
    REASON,
    Registration,
    existing_git_dir,
    fault_of,
    git_dir_of,
    locate,
    may_exist,
)
from rametd.git.remotes import Pushed, Remote
from rametd.git.removal import Removal
from rametd.git.repository import Base, Branch, Head, RepositoryInfo, write_note
from rametd.git.risk import Risk
from rametd.git.snapshots.capture import Depth
from rametd.git.snapshots.model import ARCHIVE, CHECKPOINTS, COMMITS, TRASH, Snapshot
from rametd.git.snapshots.restore import Moved
from rametd.git.snapshots.shelf import Shelved
from rametd.git.snapshots.snapshots import Numbered
from rametd.git.syncing import CutOff, Synced
from rametd.git.tracking import Changes, Tracker
from rametd.git.underway import busy_with, ending_commands, ending_words
from rametd.git.unread import parse_unread
from rametd.git.upstream import RemoteBranch
from rametd.git.worktrees import Worktree

__all__ = [
    "ARCHIVE",
    "CHECKPOINTS",
    "COMMITS",
    "EVERYTHING",
    "MAX_PATCH",
    "OF_QUEUES",
    "REASON",
    "TRASH",
    "Base",
    "Branch",
    "Changes",
    "Combined",
    "Commit",
    "Conflict",
    "CutOff",
    "Depth",
    "Diff",
    "DiffOptions",
    "File",
    "FileChange",
    "Git",
    "Head",
    "Inventory",
    "Landed",
    "LandingTree",
    "Matrix",
    "Moved",
    "Numbered",
    "Pair",
    "Pushed",
    "Registration",
    "Remote",
    "RemoteBranch",
    "Removal",
    "RepositoryInfo",
    "Risk",
    "Shelved",
    "Snapshot",
    "Synced",
    "Target",
    "Tracker",
    "Tree",
    "Whitespace",
    "Work",
    "Worktree",
    "branch_name",
    "busy_with",
    "check_branch_name",
    "ending_commands",
    "ending_words",
    "existing_git_dir",
    "fault_of",
    "git_dir_of",
    "locate",
    "may_exist",
    "parse_unread",
    "short_slug",
    "slug",
    "write_note",
]
