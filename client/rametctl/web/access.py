"""Access to the web page: one-time links, and the browser sessions that they open.

Both are grants in one file of mode 0600 in the state directory, which holds hashes of their
secrets, never a secret. The server and the verbs of ``rametctl web`` share the file: a revoked
session ends at its next request.
"""

import fcntl
import hashlib
import json
import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

LINK_S = 600.0
"""Seconds in which a link must be opened."""
SESSION_S = 7 * 86400.0
"""Seconds that a browser session lasts."""
LINK, BROWSER = "link", "browser"


@dataclass(frozen=True)
class Grant:
    """A link that waits to be opened once, or a browser session. Times are seconds since the
    epoch."""

    id: str
    kind: str
    secret: str
    """SHA-256 of the token, in hex."""
    created: float
    expires: float
    lasts: float
    """Of a link: when the browser session that it opens expires."""
    session: str = ""
    """Id of the only session that it shows, read-only; empty: everything, to the owner."""
    browser: str = ""

    @property
    def read_only(self) -> bool:
        return bool(self.session)


class Access:
    """The grants in a file. Every method may be called from several processes at once."""

    def __init__(self, file: Path, clock: Callable[[], float] = time.time) -> None:
        self.file = file
        self._clock = clock
        self._read_at: tuple[int, int, int] | None = None
        self._known: list[Grant] = []

    def grants(self) -> list[Grant]:
        """Return the grants that have not expired, the oldest first."""
        try:
            found = self.file.stat()
        except FileNotFoundError:
            return []
        stamp = found.st_mtime_ns, found.st_ino, found.st_size
        if stamp != self._read_at:
            try:
                self._known = [Grant(**each) for each in json.loads(self.file.read_text())]
            except (ValueError, TypeError):  # truncated by a loss of power: the person opens a new link
                self._known = []
            self._read_at = stamp
        now = self._clock()
        return [each for each in self._known if each.expires > now]

    def link(self, *, session: str = "", lasts: float = SESSION_S) -> str:
        """Return the token of a new link. ``session`` limits it to viewing that session, for
        ``lasts`` seconds."""
        token, now = secrets.token_urlsafe(32), self._clock()
        expires = now + (lasts if session else min(LINK_S, lasts))
        grant = Grant(secrets.token_hex(4), LINK, _digest(token), now, expires, now + lasts, session)
        with self._changing() as grants:
            grants.append(grant)
        return token

    def open(self, token: str, browser: str) -> tuple[str, Grant] | None:
        """Use up a link; return the token and the grant of the browser session that it opens, or
        None if there is no such link."""
        with self._changing() as grants:
            link = _find(grants, LINK, token)
            if link is None:
                return None
            grants.remove(link)
            fresh = secrets.token_urlsafe(32)
            made = replace(
                link,
                kind=BROWSER,
                secret=_digest(fresh),
                created=self._clock(),
                expires=link.lasts,
                browser=browser[:200],
            )
            grants.append(made)
            return fresh, made

    def find(self, token: str) -> Grant | None:
        """Return the browser session of a cookie unless it has expired or was revoked."""
        return _find(self.grants(), BROWSER, token)

    def valid(self, grant: Grant) -> bool:
        return grant in self.grants()

    def revoke(self, ids: set[str]) -> set[str]:
        """End grants by id, or all if ``ids`` is empty; return the ids that existed."""
        with self._changing() as grants:
            gone = {each.id for each in grants if not ids or each.id in ids}
            grants[:] = [each for each in grants if each.id not in gone]
            return gone

    @contextmanager
    def _changing(self) -> Iterator[list[Grant]]:
        """The grants, written when the block ends; one process at a time."""
        lock = os.open(self.file.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            grants = self.grants()
            yield grants
            fresh = self.file.with_suffix(".new")
            fresh.unlink(missing_ok=True)
            with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                json.dump([asdict(each) for each in grants], file)
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(self.file)
        finally:
            os.close(lock)


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def _find(grants: list[Grant], kind: str, token: str) -> Grant | None:
    wanted, found = _digest(token), None
    for each in grants:
        if secrets.compare_digest(each.secret, wanted) and each.kind == kind:
            found = each
    return found
