"""Worktrees of many files with few changes: checkpoints, changed files, diffs; with the change
tracker and by scan, alternately."""

import shutil
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

from rametd.git import Git, Tracker
from rametd.git.context import GitContext
from rametd.git.file_trees import write_tree

from tests.bench.figures import Figure, Scale, progress
from tests.support.daemon import git

FILES = {"full": 40_000, "quick": 4_000, "tiny": 200}
RUNS = {"full": 15, "quick": 5, "tiny": 1}
CHANGED = 10
PER_DIRECTORY = 20
REF = "refs/ramet/checkpoints/bench/1"


async def rows(scale: Scale) -> AsyncIterator[Figure]:
    files, runs = FILES[scale.name], RUNS[scale.name]
    root = Path(tempfile.mkdtemp(prefix="rmt-", dir="/tmp"))
    environment = {"PATH": "/usr/bin:/bin:/usr/local/bin", "HOME": str(root), "GIT_CONFIG_NOSYSTEM": "1"}
    context, facade = GitContext(2, environment, 10.0), Git(environment, threads=2)
    try:
        progress(f"making a worktree of {files} files")
        tree = make_tree(root, files)
        bench = Bench(tree, context, facade, files, runs)
        async for figure in bench.rows():
            yield figure
    finally:
        await facade.aclose()
        await context.aclose()
        shutil.rmtree(root)


def make_tree(root: Path, files: int) -> Path:
    """A linked worktree, as sessions have."""
    repository = root / "repo"
    for number in range(files):
        file = file_of(repository, number)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"line one of {number}\nline two\n")
    git(root, "init", "-q", "-b", "main", str(repository))
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "first")
    git(repository, "worktree", "add", "-q", "-b", "work", str(root / "tree"))
    return root / "tree"


def file_of(root: Path, number: int) -> Path:
    directory = number // PER_DIRECTORY
    return root / f"part{directory // 50}" / f"dir{directory}" / f"file{number}.txt"


class Bench:
    def __init__(self, tree: Path, context: GitContext, facade: Git, files: int, runs: int) -> None:
        self._tree = tree
        self._context = context
        self._git = facade
        self._runs = runs
        self._how = f"{files} files, {CHANGED} of them in 5 directories changed; median of {runs}"
        self._edits = 0

    async def rows(self) -> AsyncIterator[Figure]:
        scan = await self._median(lambda: write_tree(self._context, self._tree))
        yield Figure("snapshot by scan", scan, "ms", self._how, 300)
        began = time.perf_counter()
        tracker = await self._git.trackers.watch(self._tree)
        yield Figure("starting a tracker", (time.perf_counter() - began) * 1000, "ms", "rules, watches and a scan")
        by_scan = f"by scan ({scan:.0f} ms)"
        snapshots = await self._median(lambda: self._git.snapshots.take(self._tree, ref=REF, owner="bench"))
        yield Figure("checkpoint", snapshots, "ms", f"tree, commit and ref; {self._how}", 5, snapshots / scan, by_scan)
        await self._same_tree(tracker)
        names = await self._median(lambda: self._git.diffs.changed_files(self._tree, "HEAD"))
        yield Figure("changed files", names, "ms", f"against HEAD; {self._how}", 30, names / scan, by_scan)
        stat = await self._median(lambda: self._git.diffs.of_worktree(self._tree, "HEAD", patch=False))
        yield Figure("diff --stat", stat, "ms", f"against HEAD, renames found; {self._how}", 30, stat / scan, by_scan)
        patch = await self._median(lambda: self._git.diffs.of_worktree(self._tree, "HEAD"))
        yield Figure("diff", patch, "ms", f"with its patch; {self._how}", None, patch / scan, by_scan)
        await self._git.trackers.unwatch(self._tree)

        async def untracked() -> None:
            await self._git.diffs.of_worktree(self._tree, "HEAD", patch=False)

        slow = await self._median(untracked)
        yield Figure(
            "diff --stat by scan", slow, "ms", self._how, 300, slow / stat, f"from the tracker ({stat:.0f} ms)"
        )

    async def _median(self, work: Callable[[], Awaitable[object]]) -> float:
        """Return the milliseconds, each time after ten other changes. The first run fills
        caches."""
        times = []
        for _ in range(self._runs + (self._runs > 1)):
            self._edit()
            began = time.perf_counter()
            await work()
            times.append((time.perf_counter() - began) * 1000)
        return statistics.median(times[-self._runs :])

    def _edit(self) -> None:
        self._edits += 1
        for number in range(CHANGED):
            file_of(self._tree, number % 5 * 2 * PER_DIRECTORY + number).write_text(f"edit {self._edits} of {number}\n")

    async def _same_tree(self, tracker: Tracker) -> None:
        """Check that tracker and scan have the same tree."""
        self._edit()
        found, scanned = await tracker.tree(), await write_tree(self._context, self._tree)
        if found.tree != scanned.tree:
            raise AssertionError(f"the tracker found {found.tree}, a scan {scanned.tree}")
