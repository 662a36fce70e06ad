"""File events by `watchfiles`, on systems without inotify. They arrive through a thread, in order.
So `drain`, like watchman, writes a cookie file into a watched directory and waits for its event."""

import asyncio
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from watchfiles import Change
from watchfiles._rust_notify import RustNotify, WatchfilesRustInternalError

from rametd.git.tracking.walking import Found, Happened, Skip, identity, is_directory, parents, walk
from rametd.platform.inotify import OutOfWatchesError

COOKIE_S: Final = 2.0
"""Seconds to wait for the event of a cookie before events count as lost."""
LOOK_MS: Final = 5
_NO_TEXT: Final = "\ufffd"
"""Replacement of bytes of a path that are no text; the bytes are then unknown."""


class NotifyEvents:
    """Events of the whole tree; see `Events`. A batch of events has no order, so the kind of a path
    is read from the disk."""

    def __init__(self, worktree: Path, git_dir: Path, news: Callable[[], None]) -> None:
        self._root = str(worktree)
        self._cookies = git_dir / "ramet-cookies"
        self._news = news
        self._loop = asyncio.get_running_loop()
        self._happened = Happened()
        self._seen: set[str] = set()
        self._changed = threading.Condition()
        self._stop = threading.Event()
        self._broken = ""
        self._thread: threading.Thread | None = None
        self._watched: tuple[int, int] | None = None
        self._skip: Skip = lambda path: False
        self._also: frozenset[str] = frozenset()

    def begin(self, skip: Skip, also: Iterable[str]) -> Found:
        self._skip = skip
        self._also = frozenset(parent for path in also for parent in parents(path))
        if self._thread is not None and self.replaced():
            self._end()
        if self._thread is None:
            self._listen_from_now()
        return self.look_into("", skip)

    def look_into(self, directory: str, skip: Skip) -> Found:
        self._skip = skip
        return walk(self._root, directory, skip, lambda path: True)

    def replaced(self) -> bool:
        return identity(self._root) != self._watched

    def _listen_from_now(self) -> None:
        self._watched = identity(self._root)
        self._stop, self._broken, self._happened = threading.Event(), "", Happened()
        self._cookies.mkdir(exist_ok=True)
        try:
            watcher = RustNotify([self._root, str(self._cookies)], False, False, 0, True, True)
        except (OSError, WatchfilesRustInternalError) as error:
            raise OutOfWatchesError(f"file events are not available: {error}") from error
        self._thread = threading.Thread(target=self._listen, args=(watcher,), name="file-events", daemon=True)
        self._thread.start()

    def _listen(self, watcher: RustNotify) -> None:
        while True:
            try:
                found = watcher.watch(LOOK_MS * 4, LOOK_MS, 0, self._stop)
            except WatchfilesRustInternalError as error:  # every call reports it again
                with self._changed:
                    self._broken = f"file events failed: {error}"
                    self._changed.notify_all()
                found = "stop"
            if isinstance(found, str):
                watcher.close()
                return
            with self._changed:
                for change, path in found:
                    self._take(Change(change), path)
                self._changed.notify_all()
                news = bool(self._happened.paths or self._happened.lost)
            if news:  # not for a cookie: each would cause another one
                self._loop.call_soon_threadsafe(self._news)

    def _take(self, change: Change, path: str) -> None:
        if path.startswith(f"{self._cookies}/"):
            self._seen.add(path.rpartition("/")[2])
            return
        inside = os.path.relpath(path, self._root)
        above = parents(inside)
        # Check git's own directory first: our writes there must not count as changes.
        if inside in {".", ".git"} or any(part == ".git" for part in inside.split("/")[:-1]):
            return
        if any(self._skip(parent) for parent in above) and above[-1] not in self._also:
            return
        if _NO_TEXT in inside:
            self._happened.lost = True
            return
        if inside.rpartition("/")[2] != ".git" and is_directory(Path(path)):
            if change is Change.modified:
                return
            self._happened.appeared.add(inside)
        self._happened.paths.add(inside)

    async def drain(self) -> Happened:
        return await asyncio.to_thread(self._drain)

    def _drain(self) -> Happened:
        if self._thread is None:
            return Happened()
        cookie = secrets.token_hex(8)
        file = self._cookies / cookie
        try:
            file.touch()
        except OSError:  # git's directory was deleted with the tree, so no event would arrive
            return Happened(lost=True)
        deadline = time.monotonic() + COOKIE_S
        with self._changed:
            while cookie not in self._seen and not self._broken and (rest := deadline - time.monotonic()) > 0:
                self._changed.wait(rest)
            happened, self._happened = self._happened, Happened()
            happened.lost |= cookie not in self._seen
            self._seen.clear()
        file.unlink(missing_ok=True)
        if self._broken:
            raise OutOfWatchesError(self._broken)
        return happened

    def _end(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def close(self) -> None:
        self._end()
        if self._cookies.is_dir():
            for file in self._cookies.iterdir():
                file.unlink(missing_ok=True)
            self._cookies.rmdir()
