"""What has changed in a worktree, from file events, and its tree without a look at every file."""

from rametd.git.tracking.changes import Changes
from rametd.git.tracking.tracker import Tracker, Trackers, track

__all__ = ["Changes", "Tracker", "Trackers", "track"]
