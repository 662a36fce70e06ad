"""Commands in worktrees: setup, teardown, checks, and a person's own; and the ignored files that
they need."""
