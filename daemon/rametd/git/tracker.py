"""One change tracker per live worktree: the paths that may differ from the last known tree, and that tree, brought up to date from them.

**Why no change is missed.** Linux queues an event inside the system call that makes the change. `Tracker.tree` empties the queue first and reads files
afterwards. Take a write W and a snapshot S: if W ended before S emptied the queue, its path is dirty and is read; if it ended later, S may or may not
see it, but its event is in the queue for the next one. A directory that appears is watched first and listed then, so that what is made in it meanwhile
is either listed or an event. Where events come through a thread (macOS), a cookie file written by `drain` has to come back first: events keep their order.

**What no event tells**: stores through a shared memory mapping after the file was closed, and writes through a hard link outside the tree. Every scan
finds them, and a removal always scans.

Whatever is not certain ends in a scan (`snapshot.write_tree`): a queue that overflowed, changed ignore rules or attributes, submodules, line ends to be
converted. Both ways give the same tree.
"""

import asyncio
import contextlib
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import pygit2

from rametd.domain.errors import GitFailedError, RametError
from rametd.git.context import GitContext
from rametd.git.registrations import verify_worktree
from rametd.git.repository import common_dir, head_of, open_repository
from rametd.git.snapshot import WorktreeTree, write_tree
from rametd.git.tracker_events import Events, Happened, parents, source, within
from rametd.git.tracker_rules import Rules, ignored, ignored_directories, index_facts, is_rule, read_rules
from rametd.git.tracker_tree import Known, ScanNeededError, tree_of
from rametd.platform.inotify import OutOfWatchesError

DEBOUNCE_S: Final = 0.05
"""From the first event until subscribers are told of all that came meanwhile."""
POLL_S: Final = 2.0
"""How often a tree is looked at that no events tell of, while somebody wants to know."""
MANY: Final = 3000
"""Changed paths, beyond which git's own scan is faster."""


@dataclass(frozen=True, slots=True)
class Changes:
    """Paths that may have changed. ``everything``: which ones is not known."""

    paths: frozenset[str]
    everything: bool = False


class Subscription:
    """An async iterator that ends when its tracker is closed; whoever has enough calls `close`."""

    def __init__(self, readers: "set[Subscription]") -> None:
        self._queue: asyncio.Queue[Changes | None] = asyncio.Queue()
        self._readers = readers
        readers.add(self)

    def put(self, changes: Changes | None) -> None:
        self._queue.put_nowait(changes)

    def __aiter__(self) -> "Subscription":
        return self

    async def __anext__(self) -> Changes:
        found = await self._queue.get()
        while found is not None and not self._queue.empty():  # a slow reader is told once of all that came meanwhile
            more = self._queue.get_nowait()
            if more is None:
                self._queue.put_nowait(None)
                break
            found = Changes(found.paths | more.paths, found.everything or more.everything)
        if found is None:
            self._queue.put_nowait(None)  # it stays ended
            raise StopAsyncIteration
        return found

    def close(self) -> None:
        self._readers.discard(self)
        self._queue.put_nowait(None)


class Tracker:
    """Made by `Git.track`, ended by `close`. ``live``: file events tell of changes; else ``note`` says why not, and `tree` scans."""

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
        self._stale = True  # rules are to be read and watches to be set anew
        self._scan = True  # the known tree is not to be built upon
        self._dirty: set[str] = set()
        self._renewed: set[str] = set()
        self._verdicts: dict[str, bool] = {}  # by path, whether it is ignored; of paths that the tree does not have
        self._count = 0
        self._changed: dict[str, int] = {}  # by path, the count at which it last changed
        self._lost = 0
        self._news = asyncio.Event()
        self._readers: set[Subscription] = set()
        self._pump: asyncio.Task[None] | None = None

    @property
    def live(self) -> bool:
        return self._events is not None

    async def start(self) -> None:
        """Watch and scan. A system without watches left makes a tracker that is not `live`."""
        try:
            self._events = source(self.worktree, self._git_dir, self._news.set)
        except OutOfWatchesError as error:
            self.note = str(error)
        self._pump = asyncio.create_task(self._tell(), name=f"track-{self.worktree.name}")
        await self.tree()

    async def close(self) -> None:
        """End all subscriptions."""
        if self._pump is not None:
            self._pump.cancel()
            await asyncio.wait([self._pump])
        async with self._lock:
            self._unwatch("")
        for reader in self._readers:
            reader.put(None)

    async def tree(self) -> WorktreeTree:
        """The worktree's files as a tree: equal to what `write_tree` finds. Raises what that raises."""
        async with self._lock:
            await self._settle()
            return await self._up_to_date()

    async def mark(self) -> int:
        """A moment, to be given to `since`."""
        async with self._lock:
            await self._settle()
            return self._count

    async def since(self, mark: int) -> frozenset[str] | None:
        """Paths that may have changed since `mark`, ignored ones left out; None where that is not known: compare trees then."""
        async with self._lock:
            await self._settle()
            if self._events is None or self._lost > mark:
                return None
            return frozenset(path for path, count in self._changed.items() if count > mark)

    def changes(self) -> "Subscription":
        """What changes from now on, debounced."""
        made = Subscription(self._readers)
        if self._pump is None or self._pump.done():
            made.put(None)
        return made

    # ── what has happened ────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _settle(self) -> None:
        """Take note of everything that changed until now."""
        if self._events is None:
            return
        self._news.clear()
        try:
            happened = await self._events.drain()
        except OutOfWatchesError as error:
            self._unwatch(str(error))
            self._lose()
            return
        await self._note_rules()
        if happened.lost:
            self._lose()
            return
        if self._known is None or self._rules is None or not (happened.paths or happened.appeared):
            return
        if not _are_text(happened.paths):
            self._lose()  # libgit2 takes names in UTF-8 only
            return
        try:
            paths = await self._look_into(happened)
            if any(is_rule(path) for path in paths):
                self._stale = True
            told = await self._sort(paths)
        except OutOfWatchesError as error:
            self._unwatch(str(error))
            self._lose()
            return
        except GitFailedError:
            # Git was asked about paths that turned into something else under it, such as a directory into a symbolic link.
            self._lose()
            return
        self._scan |= self._stale or len(self._dirty) > MANY
        self._publish(Changes(frozenset(told), everything=self._stale))

    async def _note_rules(self) -> None:
        if self._rules is None:
            return
        settings, index = await self._git.compute(self._rules.changed, self._git_dir)
        if settings:
            self._stale = self._scan = True
        elif index:
            # A commit or `git add` by the agent: the files are what they were, but which of the ignored ones are tracked may differ.
            facts = await index_facts(self._git, self.worktree, self._git_dir)
            if facts.unusual != "" or self._rules.whole or facts.kept != self._rules.kept:
                self._stale = self._scan = True
            else:
                self._rules = replace(self._rules, index=facts.index)

    async def _look_into(self, happened: Happened) -> set[str]:
        """All paths, those in directories that appeared included; these are watched from now on unless they are ignored."""
        events, rules = self._events, self._rules
        assert events is not None, "`_settle` has looked"
        assert rules is not None, "`_settle` has looked"
        appeared = {
            path for path in happened.appeared if not any(parent in happened.appeared for parent in parents(path))
        }
        if not appeared:
            return happened.paths
        skipped = await ignored_directories(self._git, self.worktree, self._git_dir, sorted(appeared))
        skipped |= await ignored(self._git, self.worktree, self._git_dir, await self._git.compute(self._real, appeared))
        rules = self._rules = replace(rules, ignored=rules.ignored | skipped)
        paths = set(happened.paths)
        # What is tracked in there though ignored may lie in directories that are not looked into.
        self._stale |= any(within(path, directory) for path in rules.kept for directory in appeared)
        for directory in appeared:
            self._verdicts = {path: verdict for path, verdict in self._verdicts.items() if not within(path, directory)}
            self._dirty = {path for path in self._dirty if not within(path, directory)}
            self._renewed = {path for path in self._renewed if not within(path, directory)} | {directory}
            if directory not in skipped:
                paths |= await self._git.compute(events.look_into, directory, rules.ignored.__contains__)
        return paths

    async def _sort(self, paths: set[str]) -> set[str]:
        """Add to the dirty paths what a tree may hold; returns what a subscriber is to be told."""
        rules, known = self._rules, self._known
        assert rules is not None, "`_settle` has looked"
        assert known is not None, "`_settle` has looked"

        def judge() -> tuple[set[str], set[str]]:
            tree = self._open()[known.tree].peel(pygit2.Tree)
            certain = {path for path in paths if path in tree or path in self._dirty or path in rules.kept}
            asked = {path for path in paths - rules.kept if path not in self._verdicts and not _is_entry(tree, path)}
            # A rule may mean only a directory, or only a file, of that name: what is known of one is not known of the other.
            return certain, {path for path in self._real(asked) if not _is_directory(self.worktree / path)}

        certain, asked = await self._git.compute(judge)
        excluded = await ignored(self._git, self.worktree, self._git_dir, asked)
        for path in asked:
            self._verdicts[path] = path in excluded
        fresh = certain | {path for path in paths if self._verdicts.get(path) is False}
        self._dirty |= fresh
        return {path for path in fresh if not self._verdicts.get(path)}

    def _real(self, paths: set[str]) -> set[str]:
        """Those that are there, not reached through a symbolic link."""

        def is_there(path: str) -> bool:
            place = self.worktree / path
            above = (self.worktree / parent for parent in parents(path))
            return os.path.lexists(place) and not any(parent.is_symlink() for parent in above)

        return {path for path in paths if is_there(path)}

    def _lose(self) -> None:
        self._stale = self._scan = True
        self._publish(Changes(frozenset(), everything=True))

    def _publish(self, changes: Changes) -> None:
        if not changes.paths and not changes.everything:
            return
        self._count += 1
        if changes.everything:
            self._lost = self._count
            self._changed.clear()
        self._changed.update(dict.fromkeys(changes.paths, self._count))
        for reader in self._readers:
            reader.put(changes)

    def _unwatch(self, why: str) -> None:
        if self._events is not None:
            self._events.close()
        self._events, self.note = None, why
        self._news.set()  # from now on the tree is looked at now and then

    # ── the tree ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _up_to_date(self) -> WorktreeTree:
        rules, known = self._rules, self._known
        if self._events is None or self._scan or rules is None or known is None or rules.whole:
            return await self._look_at_everything()
        head = await self._git.compute(lambda: head_of(self._open()))
        if not self._dirty and not self._renewed:
            return replace(known, head=head)
        excluded = {path for path, verdict in self._verdicts.items() if verdict}
        base = Known(self._open(), self._objects, self.worktree, known.tree, excluded, rules.converts)
        try:
            tree = await tree_of(self._git, self.worktree, self._git_dir, base, self._dirty, self._renewed)
        except (
            ScanNeededError,
            GitFailedError,
            KeyError,
        ):  # KeyError: an object of the known tree was collected as garbage
            return await self._look_at_everything()
        self._dirty, self._renewed = set(), set()
        self._known = WorktreeTree(tree, head, ())
        return self._known

    async def _look_at_everything(self) -> WorktreeTree:
        if self._events is not None and self._stale:
            try:
                await self._watch_anew(self._events)
            except OutOfWatchesError as error:
                self._unwatch(str(error))
        # From here on the queue is not looked at until files have been: what changes during the scan is told next time.
        self._dirty, self._renewed = set(), set()
        self._scan = True
        written = await write_tree(self._git, self.worktree, self._git_dir)
        self._known = written
        self._scan = bool(written.skipped)
        return written

    async def _watch_anew(self, events: Events) -> None:
        """Read the rules, watch what they leave, and make sure that they still are the rules: before, nothing told of their changes."""
        rules = await read_rules(self._git, self.worktree, self._git_dir)
        while True:
            files = await self._git.compute(events.begin, rules.ignored.__contains__, rules.kept)
            await events.drain()
            again = await read_rules(self._git, self.worktree, self._git_dir)
            if again == rules:
                break
            rules = again
        inside = next((path for path in files if path.endswith("/.git")), None)
        if inside is not None:
            rules = replace(rules, whole=f"{inside.removesuffix('/.git')} is a repository of its own")
        self._rules, self._stale = rules, False
        self._repository = None  # opened anew, with the configuration as it is
        self._verdicts.clear()

    def _open(self) -> pygit2.Repository:
        if self._repository is None:
            self._repository = open_repository(self._git_dir)
        return self._repository

    # ── telling ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _tell(self) -> None:
        while True:
            if self._events is None:
                await asyncio.sleep(POLL_S)
                await self._poll()
                continue
            await self._news.wait()
            await asyncio.sleep(DEBOUNCE_S)
            async with self._lock:
                with contextlib.suppress(RametError):  # the tree may be going; whoever asks for it is told
                    await self._settle()

    async def _poll(self) -> None:
        if not self._readers:
            return
        async with self._lock:
            before = self._known
            with contextlib.suppress(RametError):
                if (await self._up_to_date()).tree != (before.tree if before else ""):
                    self._publish(Changes(frozenset(), everything=True))


async def track(git: GitContext, worktree: Path) -> Tracker:
    """See `Git.track`."""
    git_dir = await git.compute(verify_worktree, worktree, None)
    tracker = Tracker(git, worktree, git_dir)
    try:
        await tracker.start()
    except BaseException:
        await tracker.close()
        raise
    return tracker


def _is_directory(place: Path) -> bool:
    return place.is_dir() and not place.is_symlink()


def _are_text(paths: set[str]) -> bool:
    try:
        "".join(paths).encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_entry(tree: pygit2.Tree, path: str) -> bool:
    """Whether the tree holds it as a file, a link or a submodule."""
    return path in tree and not isinstance(tree[path], pygit2.Tree)
