"""Ownership of paths: claims, transfers, the guard before calls, and the audit after them."""
