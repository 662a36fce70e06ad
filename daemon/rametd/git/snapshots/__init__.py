"""Snapshots of worktrees: one format, one capture, one restore. Checkpoints, archive, trash, forks,
``--with-changes`` and rewinds are uses of them."""
