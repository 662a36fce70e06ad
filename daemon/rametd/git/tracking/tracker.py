"""One change tracker per live worktree: the paths that may differ from the last known tree, and
that tree, brought up to date from them.

**Why no change is missed.** Linux queues an event inside the system call that makes the change.
`Tracker.tree` empties the queue first and reads files afterwards. Take a write W and a snapshot S:
if W ended before S emptied the queue, its path is dirty and is read; if it ended later, S may or
may not see it, but its event is in the queue for the next one. A directory that appears is watched
first and listed then, so that a file that is created in it meanwhile is either listed or causes an
event. If events arrive through a thread (macOS), `drain` first waits for the event of a cookie
file, since events arrive in order.

**Changes without an event**: stores through a shared memory mapping after the file was closed, and
writes through a name outside the watched directories (a hard link outside the tree or in an ignored
directory; a file that was created without a name). Every scan finds them, and a removal always
scans.

In every doubt the tracker scans all files (`file_trees.write_tree`): after an overflow of the
queue, changed ignore rules or attributes, for submodules, conversions of line ends and names that
git refuses, and after any failure here. Both ways give the same tree.
"""

import asyncio
import contextlib
import os
import time
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from pathlib import Path
from stat import S_ISREG
from typing import Final

import pygit2
import structlog

from rametd.domain.errors import GitFailedError, RametError
from rametd.git.context import GitContext, WorktreeTree
from rametd.git.file_trees import write_tree
from rametd.git.repository import common_dir, open_repository
from rametd.git.tracking.attributes import Attributes
from rametd.git.tracking.changes import ChangeLog, Changes, Subscription
from rametd.git.tracking.events import Events, source
from rametd.git.tracking.rules import Rules, index_facts, is_rule, read_rules
from rametd.git.tracking.suspects import Judged, Suspects
from rametd.git.tracking.tree import Known, NewLinkError, ScanNeededError, tree_of
from rametd.git.tracking.walking import Happened, are_text, is_below, parents
from rametd.platform.inotify import OutOfWatchesError

_TICK_NS: Final = 100_000_000
"""Nanoseconds within which the system may give two changes the same time stamp, with room for a
slow clock."""

_Seen = tuple[int, int, int, int]


class Links:
    """Files of one worktree with several names: a write through one name causes no event for the
    others."""

    def __init__(self, worktree: Path) -> None:
        self._root = str(worktree)
        self._seen: dict[str, _Seen | None] = {}
        self._looked = 0

    def __contains__(self, path: object) -> bool:
        return path in self._seen

    def begin(self, files: Iterable[str], moment: int) -> None:
        """Find files with several names among ``files``. `changed` reports changes after ``moment``
        (`time.time_ns`). Blocks: 40,000 files take about a tenth of a second."""
        self._looked = moment
        self._seen = {path: found for path in files if (found := self._look(path, at_least=2)) is not None}

    def changed(self) -> set[str]:
        """Return the files that may have changed since the last call. Blocks."""
        now = time.time_ns()
        found = {path: self._look(path) for path in self._seen}
        # A file that changed just before the last look may have changed again in the same tick of
        # the clock.
        fresh = self._looked - _TICK_NS
        changed = {
            path for path, seen in found.items() if seen != self._seen[path] or (seen is not None and seen[0] >= fresh)
        }
        self._seen, self._looked = found, now
        return changed

    def _look(self, path: str, at_least: int = 1) -> _Seen | None:
        try:
            status = os.lstat(f"{self._root}/{path}")
        except OSError:
            return None
        if not S_ISREG(status.st_mode) or status.st_nlink < at_least:
            return None
        return status.st_ctime_ns, status.st_mtime_ns, status.st_size, status.st_ino


TRIES: Final = 3
"""Attempts to set watches before a scan without them: an agent may change rules or create
directories faster."""


@dataclass(frozen=True, slots=True)
class Begun:
    """Existing ``files``, without untracked ones in ignored directories. ``attributed``: there may
    be attributes. ``settled``: every later change causes an event, and the rules are valid."""

    rules: Rules
    files: frozenset[str]
    attributed: bool
    settled: bool


async def begin(git: GitContext, worktree: Path, git_dir: Path, events: Events) -> Begun:
    """Read the rules, watch all directories that are not ignored, and read the rules again: changes
    before the watches caused no event. Raise `OutOfWatchesError`, GitFailedError."""
    rules = await read_rules(git, worktree, git_dir)
    for _ in range(TRIES):
        found = await git.compute(events.begin, rules.ignored.__contains__, rules.tracked_ignored)
        happened = await events.drain()
        again = await read_rules(git, worktree, git_dir)
        late: set[str] = set()
        # Directories that appeared meanwhile, or were ignored until now, have no watch.
        for directory in rules.freed(again) | {path for path in happened.appeared if not is_below(path, again.ignored)}:
            more = await git.compute(events.look_into, directory, again.ignored.__contains__)
            late |= more.files
            found.partial |= more.partial
        settled = rules.same_as(again) and not (found.partial or happened.lost or any(map(is_rule, late)))
        rules = again
        if settled:
            break
    files = frozenset(found.files | happened.paths | late | rules.tracked_ignored)
    inside = next((path for path in files if path.endswith("/.git")), None)
    if inside is not None:
        rules = replace(rules, needs_scan=f"{inside.removesuffix('/.git')} is a separate repository")
    # Ignored directories are not listed; if they have tracked files, they may have attributes too.
    listed = any(path.rpartition("/")[2] == ".gitattributes" for path in files)
    attributed = listed or rules.attributed or bool(rules.attributes or rules.tracked_ignored)
    return Begun(rules, files, attributed, settled)


log = structlog.get_logger()

DEBOUNCE_S: Final = 0.05
"""Seconds from the first event until subscribers get all changes since."""
POLL_S: Final = 2.0
"""Interval in seconds at which to scan a tree without events, while it has subscribers."""
MANY: Final = 3000
"""Number of changed paths from which git's own scan is faster."""

_EXPECTED: Final = (GitFailedError, KeyError)
"""KeyError: an object of the known tree was collected as garbage."""


class Tracker:
    """`track` creates it, `close` ends it. ``live``: file events report changes; if not, ``note``
    says why, and `tree` scans."""

    def __init__(self, git: GitContext, worktree: Path, git_dir: Path) -> None:
        self.worktree = worktree
        self.note = ""
        self._git = git
        self._git_dir = git_dir
        self._objects = common_dir(git_dir) / "objects"
        self._lock = asyncio.Lock()
        self._events: Events | None = None
        self._rules: Rules | None = None
        self._repository: pygit2.Repository | None = None
        self._known: WorktreeTree | None = None
        self._stale = True  # read the rules and set the watches again
        self._scan = True  # do not use the known tree
        self._suspects = Suspects(git, worktree, git_dir)
        self._attributes = Attributes(git, worktree, git_dir)
        self._links = Links(worktree)
        self._log = ChangeLog()
        self._news = asyncio.Event()
        self._pump: asyncio.Task[None] | None = None

    @property
    def live(self) -> bool:
        return self._events is not None

    async def start(self) -> None:
        """Watch and scan. A system without watches left makes a tracker that is not `live`."""
        try:
            self._events = source(self._git.watches, self.worktree, self._git_dir, self._news.set)
        except (OutOfWatchesError, OSError) as error:
            self.note = str(error)
        self._pump = asyncio.create_task(self._publish_changes(), name=f"track-{self.worktree.name}")
        await self.tree()

    async def close(self) -> None:
        """End all subscriptions."""
        if self._pump is not None:
            self._pump.cancel()
            await asyncio.wait([self._pump])
        async with self._lock:
            self._unwatch("")
        self._log.end()

    async def tree(self) -> WorktreeTree:
        """Return the worktree's files as a tree, equal to that of `write_tree`. Raises what
        `write_tree` raises."""
        async with self._lock:
            await self._settle()
            return await self._up_to_date()

    async def mark(self) -> int:
        """Return a mark for `since`."""
        async with self._lock:
            await self._settle()
            return self._log.count

    async def since(self, mark: int) -> frozenset[str] | None:
        """Return the paths that may have changed since `mark`, without ignored ones. None if
        unknown: compare trees then."""
        async with self._lock:
            await self._settle()
            return None if self._events is None or self._stale else self._log.since(mark)

    def changes(self) -> Subscription:
        """Subscribe to later changes, debounced."""
        made = self._log.subscribe()
        if self._pump is None or self._pump.done():
            made.put(None)
        return made

    # ── what has happened ─────────────────────────────────────────────────────────────────────────

    async def _settle(self) -> None:
        """Process all changes until now."""
        if (events := self._events) is None:
            return
        self._news.clear()
        try:
            with contextlib.ExitStack() as unread:
                # On any exit, even cancellation, events have left the queue without being
                # processed.
                unread.callback(self._lose)
                await self._take(await events.drain(), events)
                unread.pop_all()
        except OutOfWatchesError as error:
            self._unwatch(str(error))
        except _EXPECTED as error:
            # An object of the known tree was collected as garbage, or a path that git reads changed
            # its kind meanwhile, such as from a directory to a symbolic link.
            log.debug("changes are lost", worktree=str(self.worktree), error=str(error))
        except Exception:  # a defect of Ramet: a scan of all files replaces it
            log.exception("changes are lost", worktree=str(self.worktree))

    async def _take(self, happened: Happened, events: Events) -> None:
        rules, known, repository = self._rules, self._known, self._repository
        if rules is None or known is None or repository is None:
            if happened.lost:
                self._lose()
            return

        def look() -> tuple[bool, bool, bool, Judged]:
            happened.paths |= self._links.changed()
            lost = happened.lost or events.replaced() or not are_text(happened.paths)
            paths: AbstractSet[str] = set() if lost or happened.appeared else happened.paths
            tree = repository[known.tree].peel(pygit2.Tree)
            return lost, *rules.changed(self._git_dir), self._suspects.judge(paths, tree, rules)

        # Do everything in one call to a thread: on a busy system a call may take longer than its
        # work.
        lost, settings, index, judged = await self._git.compute(look)
        if settings:
            self._stale = self._scan = True
        elif index:
            await self._read_index(rules)
        if lost:
            self._lose()
            return
        paths: AbstractSet[str] = happened.paths
        if happened.appeared:
            self._attributes.forget_below(happened.appeared)
            paths, now, stale = await self._suspects.look_into(happened, events, self._rules or rules)
            if not are_text(paths):
                self._lose()
                return
            self._rules = now
            self._stale |= stale
            judged = await self._git.compute(
                lambda: self._suspects.judge(paths, repository[known.tree].peel(pygit2.Tree), now)
            )
        self._stale |= any(is_rule(path) for path in paths)
        # An attributes file is removed with its directory without an event of its own.
        self._stale |= any(parent in paths for path in rules.attributes for parent in parents(path))
        changed = await self._suspects.add(judged)
        self._scan |= self._stale or len(self._suspects.dirty) > MANY
        if paths:
            self._log.publish(Changes(changed, everything=self._stale))

    async def _read_index(self, rules: Rules) -> None:
        """Read the index after a commit or `git add`: files are unchanged, but other ignored files
        may now be tracked."""
        facts = await index_facts(self._git, self.worktree, self._git_dir)
        same = (facts.tracked_ignored, facts.attributes) == (rules.tracked_ignored, rules.attributes)
        if facts.unusual != "" or rules.needs_scan or not same:
            self._stale = self._scan = True
        else:
            self._rules = replace(rules, index=facts.index)

    def _lose(self) -> None:
        self._stale = self._scan = True
        self._log.publish(Changes(frozenset(), everything=True))

    def _unwatch(self, why: str) -> None:
        if self._events is not None:
            self._events.close()
        self._events, self.note = None, why
        self._news.set()  # from now on the tree is scanned now and then

    # ── the tree ──────────────────────────────────────────────────────────────────────────────────

    async def _up_to_date(self) -> WorktreeTree:
        rules, known, repository = self._rules, self._known, self._repository
        if (
            self._events is None
            or self._scan
            or rules is None
            or known is None
            or repository is None
            or rules.needs_scan
        ):
            return await self._scan_all()
        suspects = self._suspects
        try:
            as_git = await self._attributes.of(suspects.dirty)
            there = (repository, self._objects, self.worktree, known.tree)
            base = Known(*there, suspects.excluded, rules.converts, as_git, self._links)
            made = await tree_of(self._git, self._git_dir, base, suspects.dirty, suspects.renewed)
        except Exception as error:
            expected = isinstance(error, (ScanNeededError, *_EXPECTED))
            if not expected:
                log.exception("tree computed by a scan instead", worktree=str(self.worktree))
            # Listing all files finds the other names of a file.
            if not expected or isinstance(error, NewLinkError):
                self._lose()
            return await self._scan_all()
        self._suspects.clear()
        self._known = WorktreeTree(
            made.tree, made.head, (), plain=True
        )  # else `rules.needs_scan` names the nested repository
        return self._known

    async def _scan_all(self) -> WorktreeTree:
        begun = await self._begin(self._events) if self._events is not None and self._stale else None
        # Do not read the queue before the files: the next call reports changes during the scan.
        self._suspects.clear()
        self._scan = True
        moment = time.time_ns()  # before any file is read
        scan = write_tree(self._git, self.worktree, self._git_dir)
        if begun is not None:
            written, _ = await asyncio.gather(scan, self._git.compute(self._links.begin, begun.files, moment))
            self._stale = not begun.settled
        else:
            written = await scan
        self._known = written
        # An unreadable directory has no watch: it may become readable without an event.
        self._stale |= bool(written.skipped)
        self._scan = self._stale
        return written

    async def _begin(self, events: Events) -> Begun | None:
        """Read the rules and set the watches; None if that failed: the next call tries again."""
        try:
            begun = await begin(self._git, self.worktree, self._git_dir, events)
            # Open it again, to read the present configuration.
            self._repository = await self._git.compute(open_repository, self._git_dir)
        except OutOfWatchesError as error:
            self._unwatch(str(error))
            return None
        except Exception:  # if git itself fails, the scan fails too, and reports it
            log.exception("changes are not followed", worktree=str(self.worktree))
            return None
        self._rules = begun.rules
        self._suspects.forget_rules()
        self._attributes.forget(exist=begun.attributed)
        return begun

    # ── telling ───────────────────────────────────────────────────────────────────────────────────

    async def _publish_changes(self) -> None:
        while True:
            if self._events is None:
                await asyncio.sleep(POLL_S)
                await self._poll()
                continue
            await self._news.wait()
            await asyncio.sleep(DEBOUNCE_S)
            async with self._lock:
                with contextlib.suppress(
                    RametError
                ):  # the worktree may be being removed; the next caller gets the error
                    await self._settle()

    async def _poll(self) -> None:
        if not self._log.is_read:
            return
        async with self._lock:
            before = self._known
            with contextlib.suppress(RametError, OSError):
                if (await self._up_to_date()).tree != (before.tree if before else ""):
                    self._log.publish(Changes(frozenset(), everything=True))


async def track(git: GitContext, worktree: Path) -> Tracker:
    """Create and start the tracker of a worktree. Raise WorktreeChangedError."""
    git_dir = await git.verified(worktree, None)
    tracker = Tracker(git, worktree, git_dir)
    async with contextlib.AsyncExitStack() as undo:
        undo.push_async_callback(tracker.close)
        await tracker.start()
        undo.pop_all()
    return tracker


class Trackers:
    """The trackers of worktrees, by path. Every method may raise what those of `Git` raise."""

    def __init__(self, git: GitContext, by_worktree: dict[Path, Tracker]) -> None:
        self._git = git
        self._by_worktree = by_worktree  # resolved paths

    async def aclose(self) -> None:
        for worktree in list(self._by_worktree):
            await self.unwatch(worktree)

    async def watch(self, worktree: Path) -> Tracker:
        """Track changes of a worktree from now on, which makes its snapshots and diffs fast.
        Returns the existing tracker if there is one.

        Raises WorktreeChangedError. If the system has no file watches left, the tracker reports it
        (`Tracker.live`).
        """
        found = self._by_worktree.get(worktree)
        if found is not None:
            return found
        made = await track(self._git, worktree)
        found = self._by_worktree.setdefault(worktree, made)
        if found is not made:  # another call was faster
            await made.close()
        return found

    async def unwatch(self, worktree: Path) -> None:
        """End the tracker of a worktree, if there is one."""
        tracker = self._by_worktree.pop(worktree, None)
        if tracker is not None:
            await tracker.close()

    def get(self, worktree: Path) -> Tracker | None:
        """Return the tracker of a worktree, if there is one."""
        return self._by_worktree.get(worktree)
