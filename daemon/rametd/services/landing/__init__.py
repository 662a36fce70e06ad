"""Merge queues: one a target, their entries, the checks, and the move of the target."""
