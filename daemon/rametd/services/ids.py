"""Ids that the daemon creates."""

import secrets

ALPHABET = "abcdefghijkmnpqrstuvwxyz23456789"  # without characters that look alike
LENGTH = 8


def new_id() -> str:
    """Create an id of 40 random bits. It starts with a letter, so that it never looks like a number
    or an option."""
    return secrets.choice(ALPHABET[:24]) + "".join(secrets.choice(ALPHABET) for _ in range(LENGTH - 1))
