"""Track changes of a worktree by file events, and compute its tree without reading every file."""

from rametd.git.tracking.changes import Changes
from rametd.git.tracking.tracker import Tracker, Trackers, track

__all__ = ["Changes", "Tracker", "Trackers", "track"]
