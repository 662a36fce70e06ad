"""Merge queues: one for each target, with entries, checks, and the move of the target."""
