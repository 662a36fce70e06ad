"""The files of sessions: places, changes, checkpoints, comments, syncing."""
