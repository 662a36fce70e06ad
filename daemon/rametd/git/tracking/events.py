"""Which paths of a worktree may have changed, from the system's file events.

Two sources with one shape. On Linux inotify itself: watches on exactly the directories that are not ignored (node_modules would take
thousands), the queue's overflow is seen, and `drain` needs no waiting. Elsewhere `watchfiles`.
"""

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

from rametd.git.tracking.walking import Found, Happened, Skip, identity, is_directory, parents, walk, within
from rametd.platform import inotify
from rametd.platform.filesystems import missing_events
from rametd.platform.inotify import OutOfWatchesError
from rametd.platform.watches import Watches


class Events(Protocol):
    """A source. ``news`` is called on the event loop whenever there may be something to drain."""

    def begin(self, skip: Skip, also: Iterable[str]) -> Found:
        """Watch all directories but those skipped, and those of ``also`` without what lies in them; returns the files. Blocks. Raises
        `OutOfWatchesError`."""

    def look_into(self, directory: str, skip: Skip) -> Found:
        """Watch a directory that appeared and return the files in it. Blocks. Raises `OutOfWatchesError`."""

    def replaced(self) -> bool:
        """Whether another directory lies where the tree was when watches were set, so that they tell of the wrong one. Blocks."""

    async def drain(self) -> Happened:
        """Everything that changed until now. Raises `OutOfWatchesError` when nothing more will be told."""

    def close(self) -> None: ...


def source(watches: Watches, worktree: Path, git_dir: Path, news: Callable[[], None]) -> Events:
    """The system's own. Raises `OutOfWatchesError`."""
    if inotify.SUPPORTED:
        return InotifyEvents(watches, worktree, news)
    from rametd.git.tracking.notify import NotifyEvents  # its library takes a megabyte

    return NotifyEvents(worktree, git_dir, news)


class InotifyEvents:
    """See the module."""

    def __init__(self, watches: Watches, worktree: Path, news: Callable[[], None]) -> None:
        self._root = str(worktree)
        self._watched: tuple[int, int] | None = None
        self._devices: set[int] = set()  # of file systems that tell of all changes
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
        )  # before the watches: what is put in its place meanwhile is seen to be another
        found = walk(self._root, "", skip, self._watch)
        for path in also:
            for parent in parents(path):
                try:
                    found.partial |= not self._watch(parent)
                except OSError:
                    break  # not there; when it is made, that is an event of the directory above
        return found

    def look_into(self, directory: str, skip: Skip) -> Found:
        return walk(self._root, directory, skip, self._watch)

    def replaced(self) -> bool:
        return identity(self._root) != self._watched

    def _watch(self, directory: str) -> bool:
        """Whether its events are sure to be of this path: a directory has one watch, also where it is moved meanwhile or is mounted twice."""
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
        """A watch follows its directory when that is moved: what it tells from then on would be said of the old path."""
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
            # Of two directories that change places in one step the second arrives before it is said to have left.
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
                happened.lost = True  # the tree itself went
            return
        path = f"{directory}/{event.name}" if directory else event.name
        if path == ".git":
            return  # where the repository is: nothing of the tree
        if event.mask & inotify.IN_ISDIR:
            if event.mask & inotify.LEFT:
                self._forget(path)
                left.add(path)
                happened.appeared = {each for each in happened.appeared if not within(each, path)}
            elif event.mask & inotify.APPEARED:
                if event.name != ".git":  # that of a repository inside is a rule, and no files
                    happened.appeared.add(path)
            else:
                return  # its own time stamps and permissions: no tree holds them
        happened.paths.add(path)

    def close(self) -> None:
        self._queue.close()
