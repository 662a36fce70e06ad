"""Paths of a worktree that may have changed, from the system's file events.

There are two sources. On Linux it is inotify, which watches only directories that are not ignored
(node_modules would need thousands of watches) and reports an overflow of its queue; `drain` does
not wait. Elsewhere it is `watchfiles`.
"""

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

from rametd.git.tracking.walking import Found, Happened, Skip, identity, is_directory, parents, walk, within
from rametd.platform import inotify
from rametd.platform.files import missing_events
from rametd.platform.inotify import OutOfWatchesError
from rametd.platform.watches import Watches


class Events(Protocol):
    """A source. It calls ``news`` on the event loop when there may be events to drain."""

    def begin(self, skip: Skip, also: Iterable[str]) -> Found:
        """Watch all directories except skipped ones, and the directories of the files ``also``;
        return the files. Blocks. Raise `OutOfWatchesError`."""

    def look_into(self, directory: str, skip: Skip) -> Found:
        """Watch a new directory, and return its files. Blocks. Raise `OutOfWatchesError`."""

    def replaced(self) -> bool:
        """Return whether another directory has replaced the watched tree. Blocks."""

    async def drain(self) -> Happened:
        """Return all changes until now. Raise `OutOfWatchesError` if the system can report no
        further ones."""

    def close(self) -> None: ...


def source(watches: Watches, worktree: Path, git_dir: Path, news: Callable[[], None]) -> Events:
    """Create the source of this system. Raise `OutOfWatchesError`."""
    if inotify.SUPPORTED:
        return InotifyEvents(watches, worktree, news)
    from rametd.git.tracking.notify import NotifyEvents  # its library takes a megabyte

    return NotifyEvents(worktree, git_dir, news)


class InotifyEvents:
    """The source on Linux; see the module."""

    def __init__(self, watches: Watches, worktree: Path, news: Callable[[], None]) -> None:
        self._root = str(worktree)
        self._watched: tuple[int, int] | None = None
        self._devices: set[int] = set()  # of file systems that report all changes
        self._paths: dict[int, str] = {}
        self._watches: dict[str, int] = {}
        self._queue = watches.open(news)

    def begin(self, skip: Skip, also: Iterable[str]) -> Found:
        for wd in list(self._paths):
            self._queue.unwatch(wd)
        self._paths.clear()
        self._watches.clear()
        self._devices.clear()
        self._watched = identity(
            self._root
        )  # read before setting watches: a directory that replaces it meanwhile has another identity
        found = walk(self._root, "", skip, self._watch)
        for path in also:
            for parent in parents(path):
                try:
                    found.partial |= not self._watch(parent)
                except OSError:
                    break  # missing; its creation is an event of the directory above
        return found

    def look_into(self, directory: str, skip: Skip) -> Found:
        return walk(self._root, directory, skip, self._watch)

    def replaced(self) -> bool:
        return identity(self._root) != self._watched

    def _watch(self, directory: str) -> bool:
        """Watch a directory. Return False if its events may name another path: a directory has one
        watch, even after a move or with two mounts."""
        place = f"{self._root}/{directory}"
        wd = self._queue.watch(place)
        device = Path(place).stat().st_dev
        if device not in self._devices:
            if why := missing_events(place):
                raise OutOfWatchesError(why)
            self._devices.add(device)
        other = self._paths.get(wd, directory)
        if other != directory:
            self._watches.pop(other, None)
        self._paths[wd] = directory
        self._watches[directory] = wd
        return other == directory

    def _forget(self, directory: str) -> None:
        """Remove the watches of a moved directory, which would report changes under the old
        path."""
        below = directory + "/"
        for path in [path for path in self._watches if path == directory or path.startswith(below)]:
            wd = self._watches.pop(path)
            self._paths.pop(wd, None)
            self._queue.unwatch(wd)

    async def drain(self) -> Happened:
        happened = Happened()
        left: set[str] = set()
        for event in self._queue.read():
            self._take(event, happened, left)
        if left:
            # After an atomic exchange of two directories, the arrival of the second is reported
            # before its departure.
            happened.appeared |= await asyncio.to_thread(self._still_there, left)
        return happened

    def _still_there(self, left: set[str]) -> set[str]:
        return {path for path in left if is_directory(Path(f"{self._root}/{path}"))}

    def _take(self, event: inotify.Event, happened: Happened, left: set[str]) -> None:
        if event.mask & (inotify.IN_Q_OVERFLOW | inotify.IN_UNMOUNT):
            happened.lost = True
            return
        directory = self._paths.get(event.wd)
        if directory is None or event.mask & inotify.IN_IGNORED:
            return
        if not event.name:
            if not directory and event.mask & (inotify.IN_DELETE_SELF | inotify.IN_MOVE_SELF):
                happened.lost = True  # the tree itself was moved or deleted
            return
        path = f"{directory}/{event.name}" if directory else event.name
        if path == ".git":
            return  # the pointer to the repository is no part of the tree
        if event.mask & inotify.IN_ISDIR:
            if event.mask & inotify.LEFT:
                self._forget(path)
                left.add(path)
                happened.appeared = {each for each in happened.appeared if not within(each, path)}
            elif event.mask & inotify.APPEARED:
                if event.name != ".git":  # the .git of a nested repository is a rule, and has no files of the tree
                    happened.appeared.add(path)
            else:
                return  # a tree does not record times or permissions of directories
        happened.paths.add(path)

    def close(self) -> None:
        self._queue.close()
