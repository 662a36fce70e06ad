"""Identities that the daemon gives."""

import secrets

ALPHABET = "abcdefghijkmnpqrstuvwxyz23456789"  # nothing that is taken for something else
LENGTH = 8


def new_id() -> str:
    """A new identity of 40 random bits; it begins with a letter, so that it never looks like a number or an option."""
    return secrets.choice(ALPHABET[:24]) + "".join(secrets.choice(ALPHABET) for _ in range(LENGTH - 1))
