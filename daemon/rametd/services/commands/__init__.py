"""Commands in worktrees: setup, teardown, checks, servers, a person's own; and what they need: files, ports, environment, trust."""
