"""Predict whether the work of sessions will merge, and where not: a three-way merge in memory of
the files that both changed.

As in git, changes of text conflict if they overlap or touch in the common ancestor, unless both are
equal (xdiff/xmerge.c). Changes of paths are judged as in merge-ort. `Matrix` compares each pair of
many sessions from the merge base of their histories: for sessions with the same starting commit,
only their own changes count. All pairs share its caches. Never writes.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeVar, cast

import pygit2

from rametd.domain.conflicts import SEVERITY, ConflictKind, FileConflict, LineRange
from rametd.git.changes import Change, Changes, Entry, changes
from rametd.git.commits import ignores_case
from rametd.git.context import GitContext
from rametd.git.repository import open_repository

SUBMODULE: Final = 0o160000
LINK: Final = 0o120000


@dataclass(frozen=True, slots=True)
class _Hunk:
    """Lines [old, old_end) of the ancestor became lines [new, new_end), counted from 0."""

    old: int
    old_end: int
    new: int
    new_end: int


def predict(
    repository: pygit2.Repository, ours: Changes, theirs: Changes, *, ignore_case: bool = False
) -> tuple[FileConflict, ...]:
    """Return the files that both change, the worst conflict first. Both must be changes from the
    same tree."""
    found = [*_same_origin(repository, ours, theirs), *_same_target(repository, ours, theirs, ignore_case)]
    found += _moved_directories(repository, ours, theirs)
    found += (
        replace(each, path=each.other_path or each.path, other_path=each.path if each.other_path else "")
        for each in _moved_directories(repository, theirs, ours)
    )
    unique = {(each.path, each.other_path): each for each in sorted(found, key=lambda each: SEVERITY[each.kind])}
    return tuple(sorted(unique.values(), key=lambda each: (-SEVERITY[each.kind], each.path, each.other_path)))


def _same_origin(repository: pygit2.Repository, ours: Changes, theirs: Changes) -> Iterator[FileConflict]:
    """Compare files of the ancestor that both touched."""
    for path in ours.by_old.keys() & theirs.by_old.keys():
        one, other = ours.by_old[path], theirs.by_old[path]
        if one.new is None or other.new is None:
            if one.new is not other.new:
                yield _pair(one, other, ConflictKind.DELETE_EDIT)
            continue
        if one.renamed and other.renamed and one.new_path != other.new_path:
            yield _pair(one, other, ConflictKind.RENAME)
            continue
        assert one.old is not None, "it is a file of the ancestor"
        content = _merge(repository, path, one.old, one.new, other.new)
        if content is not None:
            yield _pair(one, other, content.kind, content.lines, content.other_lines)


def _same_target(
    repository: pygit2.Repository, ours: Changes, theirs: Changes, ignore_case: bool
) -> Iterator[FileConflict]:
    """Compare paths that both added, and a file at the path of the other side's directory."""

    def key(path: str) -> str:
        return path.casefold() if ignore_case else path

    mine, their_files = ours.targets, {key(path): change for path, change in theirs.targets.items()}
    their_folders = {key(folder): change for path, change in theirs.targets.items() for folder in _parents(path)}
    for path, one in mine.items():
        other = their_files.get(key(path))
        if other is not None and not (one.old is not None and one.old_path == other.old_path and other.old is not None):
            same = one.new == other.new and one.new_path == other.new_path and not (one.renamed or other.renamed)
            if not same:
                renamed = one.renamed or other.renamed
                yield _pair(one, other, ConflictKind.RENAME if renamed else ConflictKind.ADD_ADD)
        if (inside := their_folders.get(key(path))) is not None:
            yield _pair(one, inside, ConflictKind.ADD_ADD)
        for folder in _parents(path):
            if (outside := their_files.get(key(folder))) is not None:
                yield _pair(one, outside, ConflictKind.ADD_ADD)


def _moved_directories(repository: pygit2.Repository, ours: Changes, theirs: Changes) -> Iterator[FileConflict]:
    """Compare files that one side adds to a directory that the other side moved: git reports a
    conflict about their place."""
    left = {folder: change for change in ours.by_old.values() if change.renamed for folder in _parents(change.old_path)}
    if not left or not theirs.added:
        return
    tree = repository[ours.tree].peel(pygit2.Tree)
    for path, added in theirs.added.items():
        for folder in _parents(path):
            moved = left.get(folder)
            if moved is not None and not moved.new_path.startswith(folder + "/") and folder not in tree:
                yield FileConflict(moved.new_path, ConflictKind.RENAME, added.new_path)
                break


def _parents(path: str) -> Iterator[str]:
    folder = path.rpartition("/")[0]
    while folder:
        yield folder
        folder = folder.rpartition("/")[0]


def _pair(
    one: Change,
    other: Change,
    kind: ConflictKind,
    lines: tuple[LineRange, ...] = (),
    other_lines: tuple[LineRange, ...] = (),
) -> FileConflict:
    other_path = other.new_path if other.new_path != one.new_path else ""
    return FileConflict(one.new_path, kind, other_path, lines, other_lines)


def _merge(repository: pygit2.Repository, path: str, base: Entry, one: Entry, other: Entry) -> FileConflict | None:
    """Compare the contents; None if they are the same."""
    if one.id == other.id:
        return None
    if base.id in (one.id, other.id):
        return FileConflict(path, ConflictKind.SAME_FILE)  # one of them changed only its mode or name
    modes = {base.mode, one.mode, other.mode}
    if SUBMODULE in modes:
        return FileConflict(path, ConflictKind.SUBMODULE)
    if LINK in modes:
        return FileConflict(path, ConflictKind.OVERLAP)
    blobs = [repository[entry.id] for entry in (base, one, other)]
    if any(not isinstance(blob, pygit2.Blob) or blob.is_binary for blob in blobs):
        return FileConflict(path, ConflictKind.BINARY)
    ancestor, left, right = blobs
    assert isinstance(ancestor, pygit2.Blob)
    texts = [blob.read_raw().splitlines(keepends=True) for blob in (left, right)]
    clashes = list(_clashes(_hunks(ancestor, left), _hunks(ancestor, right), texts[0], texts[1]))
    if not clashes or repository.get_attr(path, "merge") == "union":
        return FileConflict(path, ConflictKind.SAME_FILE)
    return FileConflict(
        path,
        ConflictKind.OVERLAP,
        lines=tuple(LineRange(mine[0] + 1, mine[1]) for mine, _ in clashes),
        other_lines=tuple(LineRange(theirs[0] + 1, theirs[1]) for _, theirs in clashes),
    )


def _hunks(ancestor: pygit2.Blob, side: pygit2.Object) -> list[_Hunk]:
    assert isinstance(side, pygit2.Blob)
    patch = ancestor.diff(side, context_lines=0, interhunk_lines=0)  # type: ignore[call-arg] # the stub lacks both
    return [
        # a hunk without lines on a side has the number of the line before it
        _Hunk(
            old := hunk.old_start - (1 if hunk.old_lines else 0),
            old + hunk.old_lines,
            new := hunk.new_start - (1 if hunk.new_lines else 0),
            new + hunk.new_lines,
        )
        for hunk in patch.hunks
    ]


Span = tuple[int, int]


def _clashes(
    ours: Sequence[_Hunk], theirs: Sequence[_Hunk], our_lines: Sequence[bytes], their_lines: Sequence[bytes]
) -> Iterator[tuple[Span, Span]]:
    """Return the lines of each side, [from, to) counted from 0, where different changes overlap or
    touch."""
    mine, yours = _Side(ours), _Side(theirs)
    events = sorted([(hunk.old, hunk.old_end, 0) for hunk in ours] + [(hunk.old, hunk.old_end, 1) for hunk in theirs])
    number = 0
    while number < len(events):
        start, end, side = events[number]
        sides = {side}
        number += 1
        # Hunks of one side never touch each other, so a cluster grows only through hunks of the
        # other.
        while number < len(events) and events[number][0] <= end:
            end = max(end, events[number][1])
            sides.add(events[number][2])
            number += 1
        if len(sides) == 2:
            here, there = mine.span(start, end), yours.span(start, end)
            if our_lines[slice(*here)] != their_lines[slice(*there)]:
                yield here, there


class _Side:
    """Map lines of the ancestor to lines of one side."""

    def __init__(self, hunks: Sequence[_Hunk]) -> None:
        self._hunks = hunks

    def span(self, start: int, end: int) -> Span:
        """Return the position of the ancestor's lines [start, end), including insertions at their
        edges. No hunk crosses either end."""
        shift = 0
        first = None
        for hunk in self._hunks:
            if hunk.old >= start and first is None:
                first = start + shift
            if hunk.old > end or (hunk.old == end and hunk.old_end > end):
                break
            shift = hunk.new_end - hunk.old_end
        return (start + shift if first is None else first), end + shift


CACHED: Final = 512
"""Maximum number of cached sets of changed files."""

Pair = tuple[str, str]
Key = TypeVar("Key")
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Work:
    """A session's work: its tree, and the commit that it is based on.

    ``base`` is the commit that it will land on, "" if unknown. Changes that the work has in common
    with it are not its own: two sessions conflict only in files that both have changed, even if one
    of them began later.
    """

    tree: str
    head: str
    base: str = ""


AT_ONCE = 16
"""Pairs to compare in one call of a thread. A daemon that stops waits for the call, not for the
thousands of pairs of fifty sessions."""


class Matrix:
    """Comparisons within one repository. They run in threads of the git layer, one at a time."""

    def __init__(self, git: GitContext, common_dir: Path) -> None:
        self._git = git
        self._common_dir = common_dir
        self._bases: dict[frozenset[str], str] = {}  # two commits → the tree of their merge base
        self._changes: dict[tuple[str, str], Changes] = {}  # from tree to tree
        self._ignore_case: bool | None = None

    async def compare(self, works: Mapping[str, Work], pairs: Collection[Pair]) -> dict[Pair, tuple[FileConflict, ...]]:
        """Return the paths that both sides of each pair change. ``pairs`` are keys of ``works``.
        Raise GitFailedError."""
        found: dict[Pair, tuple[FileConflict, ...]] = {}
        listed = list(pairs)
        for begin in range(0, len(listed), AT_ONCE):
            found |= await self._git.compute(self._compare, works, listed[begin : begin + AT_ONCE])
        return found

    def _compare(self, works: Mapping[str, Work], pairs: Collection[Pair]) -> dict[Pair, tuple[FileConflict, ...]]:
        repository = open_repository(self._common_dir)
        if self._ignore_case is None:
            self._ignore_case = ignores_case(self._common_dir)
        found: dict[Pair, tuple[FileConflict, ...]] = {}
        for one, other in pairs:
            base = self._base(repository, works[one].head, works[other].head)
            sides = [self._from(repository, base, works[name].tree) for name in (one, other)]
            met = predict(repository, *sides, ignore_case=self._ignore_case)
            for name in (one, other):
                own = self._own(repository, works[name])
                met = tuple(each for each in met if own is None or own & {each.path, each.other_path})
            found[one, other] = met
        return found

    def _own(self, repository: pygit2.Repository, work: Work) -> frozenset[str] | None:
        """Return the paths that the work has changed since its base, or None if the base is
        unknown."""
        if not work.base:
            return None
        return self._from(repository, self._base(repository, work.head, work.base), work.tree).paths

    def _base(self, repository: pygit2.Repository, one: str, other: str) -> str:
        key = frozenset((one, other))
        if key not in self._bases:
            _make_room(self._bases)
            base = cast("pygit2.Oid | None", repository.merge_base(pygit2.Oid(hex=one), pygit2.Oid(hex=other)))
            # Unrelated histories have the empty tree in common.
            tree = repository.TreeBuilder().write() if base is None else repository[base].peel(pygit2.Tree).id
            self._bases[key] = str(tree)
        return self._bases[key]

    def _from(self, repository: pygit2.Repository, base: str, tree: str) -> Changes:
        if (base, tree) not in self._changes:
            _make_room(self._changes)
            self._changes[base, tree] = changes(repository, pygit2.Oid(hex=base), pygit2.Oid(hex=tree))
        return self._changes[base, tree]


def _make_room(cache: dict[Key, Value]) -> None:
    """Drop the older half of the cache, by the dictionary's order."""
    if len(cache) >= CACHED:
        for key in list(cache)[: CACHED // 2]:
            del cache[key]
