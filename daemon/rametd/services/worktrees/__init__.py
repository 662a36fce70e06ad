"""Files of sessions: paths, changes, checkpoints, comments, rewind, sync."""
