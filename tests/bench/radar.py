"""The radar: all pairs of twenty sessions, and the pairs of a changed one, compared with git
processes."""

import random
import statistics
import subprocess
import time
from collections.abc import AsyncIterator, Sequence
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory

import pygit2
from rametd.git import Git
from rametd.git.prediction import Work

from tests.bench.figures import Figure, Scale, progress

SESSIONS = 20
OWN = 10
"""Files that each session changes; half are random ones of all, so that sessions may change the
same by chance."""
SHARED = 5
"""Files that all of them change."""
RUNS = 7
AUTHOR = pygit2.Signature("Bench", "bench@example.com", 1_700_000_000, 0)


async def rows(scale: Scale) -> AsyncIterator[Figure]:
    with TemporaryDirectory(prefix="rmt-", dir="/tmp") as place:
        repository = pygit2.init_repository(place, bare=True)
        progress(f"{SESSIONS} sessions on {scale.monorepo} files")
        index, base = made(repository, scale.monorepo)
        works = [work(repository, index, base, seed) for seed in range(SESSIONS + RUNS)]
        names = [f"s{number:02}" for number in range(SESSIONS)]
        git = Git({})
        try:
            info = await git.discover(Path(place))
            whole: list[float] = []
            for _ in range(RUNS):
                matrix = git.matrix(info)  # no cache of the previous run
                began = time.perf_counter()
                await matrix.compare(dict(zip(names, works, strict=False)), list(combinations(names, 2)))
                whole.append(time.perf_counter() - began)
            one: list[float] = []
            for changed in works[SESSIONS:]:
                current = dict(zip(names, [changed, *works[1:SESSIONS]], strict=True))
                began = time.perf_counter()
                await matrix.compare(current, [(names[0], other) for other in names[1:]])
                one.append(time.perf_counter() - began)
        finally:
            await git.aclose()
        pairs = list(combinations(range(SESSIONS), 2))
        yardstick = by_git(Path(place), works, pairs)
        yield row("conflict matrix, cold", whole, 400, f"{len(pairs)} pairs", yardstick)
        by_one = by_git(Path(place), works, [(0, other) for other in range(1, SESSIONS)])
        yield row("conflict matrix, after one session changed ten files", one, 25, f"{SESSIONS - 1} pairs", by_one)


def made(repository: pygit2.Repository, files: int) -> tuple[pygit2.Index, pygit2.Oid]:
    """Write a first commit of ``files`` files of forty lines, a hundred to a directory, and its
    index."""
    index = pygit2.Index()
    for number in range(files):
        index.add(pygit2.IndexEntry(name(number), blob(repository, number, {}), pygit2.enums.FileMode.BLOB))
    return index, repository.create_commit(None, AUTHOR, AUTHOR, "base", index.write_tree(repository), [])


def name(number: int) -> str:
    return f"d{number // 2000:02}/e{number // 100 % 20:02}/file{number % 100:02}.txt"


def blob(repository: pygit2.Repository, number: int, edits: dict[int, str]) -> pygit2.Oid:
    text = "".join(edits.get(line, f"line {line} of file {number}") + "\n" for line in range(40))
    return repository.create_blob(text.encode())


def work(repository: pygit2.Repository, index: pygit2.Index, base: pygit2.Oid, seed: int) -> Work:
    """Return a session's tree: random files of the base changed, and a line of each file that all
    sessions change."""
    draw = random.Random(seed)  # noqa: S311 - the same in every run
    mine = pygit2.Index()
    mine.read_tree(repository[base].peel(pygit2.Tree))
    for number in [*range(SHARED), *draw.sample(range(SHARED, len(index)), OWN)]:
        line = seed * 2 % 40 if number < SHARED else draw.randrange(40)
        changed = blob(repository, number, {line: f"changed by {seed}"})
        mine.add(pygit2.IndexEntry(name(number), changed, pygit2.enums.FileMode.BLOB))
    return Work(str(mine.write_tree(repository)), str(base))


def by_git(place: Path, works: Sequence[Work], pairs: Sequence[tuple[int, int]]) -> float:
    """Return the seconds of `git merge-tree` for the same pairs, a process each."""
    repository = pygit2.Repository(str(place))
    commits = [
        str(repository.create_commit(None, AUTHOR, AUTHOR, "w", pygit2.Oid(hex=each.tree), [pygit2.Oid(hex=each.head)]))
        for each in works
    ]
    began = time.perf_counter()
    for one, other in pairs:
        command = ["git", "merge-tree", "--write-tree", "--name-only", commits[one], commits[other]]
        done = subprocess.run(command, cwd=place, capture_output=True, check=False)
        if done.returncode not in (0, 1):
            raise RuntimeError(done.stderr.decode())
    return time.perf_counter() - began


def row(what: str, times: Sequence[float], most: float, size: str, yardstick: float) -> Figure:
    median = statistics.median(times)
    how = f"{size} of {SESSIONS} sessions with {OWN + SHARED} changed files each; median of {len(times)}"
    words = f"git merge-tree, a process a pair ({yardstick * 1000:.0f} ms)"
    return Figure(what, median * 1000, "ms", how, most, median / yardstick, words)
