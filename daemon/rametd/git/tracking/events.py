"""Which paths of a worktree may have changed, from the system's file events.

Two sources with one shape. On Linux inotify itself: watches on exactly the directories that are not ignored (node_modules would take
thousands), the queue's overflow is seen, and `drain` needs no waiting. Elsewhere `watchfiles`, whose events come through a thread: `drain` writes a
cookie into a watched place and waits until it comes back, as watchman does, since events keep their order.
"""

import asyncio
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from watchfiles import Change
from watchfiles._rust_notify import RustNotify, WatchfilesRustInternalError

from rametd.platform import inotify
from rametd.platform.inotify import Inotify, OutOfWatchesError

COOKIE_S: Final = 2.0
"""How long a cookie may take before events count as lost."""
LOOK_MS: Final = 5

Skip = Callable[[str], bool]
"""Whether a directory, as a path in the worktree, is not to be looked into."""


@dataclass(slots=True)
class Happened:
    """Paths in the worktree that may have changed since the last time; ``appeared`` are directories that are new, or moved, with all in them.

    ``lost``: events were dropped, so that anything may have changed.
    """

    paths: set[str] = field(default_factory=set)
    appeared: set[str] = field(default_factory=set)
    lost: bool = False


class Events(Protocol):
    """A source. ``news`` is called on the event loop whenever there may be something to drain."""

    def begin(self, skip: Skip, also: Iterable[str]) -> set[str]:
        """Watch all directories but those skipped, and those of ``also`` without what lies in them; returns the files. Blocks. Raises
        `OutOfWatchesError`."""

    def look_into(self, directory: str, skip: Skip) -> set[str]:
        """Watch a directory that appeared and return the files in it. Blocks. Raises `OutOfWatchesError`, and `PermissionError` where one may not
        be looked into: a scan says so."""

    async def drain(self) -> Happened:
        """Everything that changed until now. Raises `OutOfWatchesError` when nothing more will be told."""

    def close(self) -> None: ...


def source(worktree: Path, git_dir: Path, news: Callable[[], None]) -> Events:
    """The system's own. Raises `OutOfWatchesError`."""
    return InotifyEvents(worktree, news) if inotify.SUPPORTED else NotifyEvents(worktree, git_dir, news)


def walk(root: str, start: str, skip: Skip, enter: Callable[[str], None], *, strict: bool = False) -> set[str]:
    """Files at and below ``start`` (a path in ``root``, "" for all of it), ``.git`` counting as one; ``enter`` is called for each directory before it is listed, so that
    what is made in it afterwards is an event. What vanishes meanwhile is left out, and what may not be looked into, unless ``strict``."""
    files: set[str] = set()
    waiting = [start]
    while waiting:
        directory = waiting.pop()
        try:
            enter(directory)
            with os.scandir(f"{root}/{directory}") as entries:
                for entry in entries:
                    path = f"{directory}/{entry.name}" if directory else entry.name
                    if entry.name == ".git" or not entry.is_dir(follow_symlinks=False):
                        files.add(path)
                    elif not skip(path):
                        waiting.append(path)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except PermissionError:
            if strict:
                raise
    return files


class InotifyEvents:
    """See the module."""

    def __init__(self, worktree: Path, news: Callable[[], None]) -> None:
        self._root = str(worktree)
        self._paths: dict[int, str] = {}
        self._watches: dict[str, int] = {}
        self._queue = Inotify()
        self._news = news
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._queue.descriptor, self._readable)

    def _readable(self) -> None:
        # Level-triggered: without this the loop would call again and again until somebody drains.
        self._loop.remove_reader(self._queue.descriptor)
        self._news()

    def begin(self, skip: Skip, also: Iterable[str]) -> set[str]:
        for wd in list(self._paths):
            self._queue.unwatch(wd)
        self._paths.clear()
        self._watches.clear()
        files = walk(self._root, "", skip, self._watch)
        for path in also:
            for parent in parents(path):
                try:
                    self._watch(parent)
                except OSError:
                    break  # not there; when it is made, that is an event of the directory above
        return files

    def look_into(self, directory: str, skip: Skip) -> set[str]:
        return walk(self._root, directory, skip, self._watch, strict=True)

    def _watch(self, directory: str) -> None:
        wd = self._queue.watch(f"{self._root}/{directory}")
        self._paths[wd] = directory
        self._watches[directory] = wd

    def _forget(self, directory: str) -> None:
        """A watch follows its directory when that is moved: what it tells from then on would be said of the old path."""
        below = directory + "/"
        for path in [path for path in self._watches if path == directory or path.startswith(below)]:
            wd = self._watches.pop(path)
            self._paths.pop(wd, None)
            self._queue.unwatch(wd)

    async def drain(self) -> Happened:
        happened = Happened()
        for event in self._queue.read():
            self._take(event, happened)
        self._loop.add_reader(self._queue.descriptor, self._readable)
        return happened

    def _take(self, event: inotify.Event, happened: Happened) -> None:
        if event.mask & (inotify.IN_Q_OVERFLOW | inotify.IN_UNMOUNT):
            happened.lost = True
            return
        directory = self._paths.get(event.wd)
        if directory is None or event.mask & inotify.IN_IGNORED:
            return
        if not event.name:
            if not directory and event.mask & (inotify.IN_DELETE_SELF | inotify.IN_MOVE_SELF):
                happened.lost = True  # the tree itself went
            return
        path = f"{directory}/{event.name}" if directory else event.name
        if event.mask & inotify.IN_ISDIR:
            if event.mask & inotify.LEFT:
                self._forget(path)
                happened.appeared = {each for each in happened.appeared if not within(each, path)}
            elif event.mask & inotify.APPEARED:
                happened.appeared.add(path)
            else:
                return  # its own time stamps and permissions: no tree holds them
        happened.paths.add(path)

    def close(self) -> None:
        self._loop.remove_reader(self._queue.descriptor)
        self._queue.close()


class NotifyEvents:
    """`watchfiles`, all of the tree; see the module. Its set of events has no order within one batch, so a path's kind is looked up."""

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
        self._skip: Skip = lambda path: False

    def begin(self, skip: Skip, also: Iterable[str]) -> set[str]:
        self._skip = skip
        if self._thread is None:
            self._listen_from_now()
        return walk(self._root, "", skip, lambda path: None)

    def _listen_from_now(self) -> None:
        self._cookies.mkdir(exist_ok=True)
        try:
            watcher = RustNotify([self._root, str(self._cookies)], False, False, 0, True, True)
        except (OSError, WatchfilesRustInternalError) as error:
            raise OutOfWatchesError(f"file events cannot be had: {error}") from error
        self._thread = threading.Thread(target=self._listen, args=(watcher,), name="file-events", daemon=True)
        self._thread.start()

    def _listen(self, watcher: RustNotify) -> None:
        while True:
            try:
                found = watcher.watch(LOOK_MS * 4, LOOK_MS, 0, self._stop)
            except WatchfilesRustInternalError as error:  # it says so again whenever it is asked
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
            if news:  # a cookie is none: it would be followed by another without end
                self._loop.call_soon_threadsafe(self._news)

    def _take(self, change: Change, path: str) -> None:
        if path.startswith(f"{self._cookies}/"):
            self._seen.add(path.rpartition("/")[2])
            return
        inside = os.path.relpath(path, self._root)
        above = parents(inside)
        # Git's own directory first: what we write into it must not be news to us.
        if (
            inside in {".", ".git"}
            or any(part == ".git" for part in inside.split("/")[:-1])
            or any(self._skip(parent) for parent in above)
        ):
            return
        if Path(path).is_dir() and not Path(path).is_symlink():
            if change is Change.modified:
                return
            self._happened.appeared.add(inside)
        self._happened.paths.add(inside)

    def look_into(self, directory: str, skip: Skip) -> set[str]:
        return walk(self._root, directory, skip, lambda path: None, strict=True)

    async def drain(self) -> Happened:
        return await asyncio.to_thread(self._drain)

    def _drain(self) -> Happened:
        if self._thread is None:
            return Happened()
        cookie = secrets.token_hex(8)
        file = self._cookies / cookie
        file.touch()
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

    def close(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        if self._cookies.is_dir():
            for file in self._cookies.iterdir():
                file.unlink(missing_ok=True)
            self._cookies.rmdir()


def parents(path: str) -> list[str]:
    """The directories above a path, the topmost first: ``a/b/c`` gives ``a`` and ``a/b``."""
    parts = path.split("/")[:-1]
    return ["/".join(parts[: number + 1]) for number in range(len(parts))]


def within(path: str, directory: str) -> bool:
    return path == directory or path.startswith(f"{directory}/")
