"""Tokens: an agent's environment has its session's token, which distinguishes its calls from the
person's. Commands without a session share a token.

A token is the session's id and an HMAC of it under a key that only the daemon has (a file of mode
0600). So the daemon stores no tokens, and none outlives its session.
"""

import hashlib
import hmac
import os
import secrets
from pathlib import Path

from rametd.domain.errors import UnauthenticatedError


class Tokens:
    """Creates and checks tokens with one key."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    @classmethod
    def load(cls, path: Path) -> "Tokens":
        """Read the key from ``path``; create it, readable only for the owner, if it is missing."""
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not path.exists():
            scratch = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
            descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(secrets.token_bytes(32))
                file.flush()
                os.fsync(file.fileno())
            scratch.rename(path)
        return cls(path.read_bytes())

    def give(self, session_id: str) -> str:
        return f"{session_id}.{self._mac(session_id)}"

    def check(self, token: str) -> str:
        """Return the session's id. Raises `UnauthenticatedError` for a token that `give` did not
        create."""
        session_id, _, mac = token.partition(".")
        if not hmac.compare_digest(mac.encode("utf-8", "replace"), self._mac(session_id).encode()):
            raise UnauthenticatedError(
                "RAMET_TOKEN is not a token of this daemon", hint="unset RAMET_TOKEN to act as yourself"
            )
        return session_id

    def digest(self, secret: bytes) -> str:
        """Return a digest of ``secret`` that only this daemon can compute, so that it may be
        stored."""
        return hmac.new(self._key, b"digest:" + secret, hashlib.sha256).hexdigest()[:32]

    def _mac(self, session_id: str) -> str:
        return hmac.new(self._key, session_id.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()[:40]
