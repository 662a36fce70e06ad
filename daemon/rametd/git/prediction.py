"""Predict whether two sessions' work will merge, and where not: a three-way merge in memory of the files that both changed.

As in git, changes of text conflict if they overlap or touch in the common ancestor, unless both write the same (xdiff/xmerge.c). Changes of
paths are judged as merge-ort does. Blocks; never writes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pygit2

from rametd.domain.conflicts import SEVERITY, ConflictKind, FileConflict, LineRange
from rametd.git.changes import Change, Changes, Entry

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
    """Return the files that both change, the worst conflict first. Both must be changes from the same tree."""
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
    """Compare paths that both added; also a file where the other has a directory."""

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
    """Compare files that one adds to a directory which the other moved: git asks where they belong."""
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
        # A hunk without lines on a side names the line before it.
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
    """Return the lines of each side, [from, to) counted from 0, where different changes overlap or touch."""
    mine, yours = _Side(ours), _Side(theirs)
    events = sorted([(hunk.old, hunk.old_end, 0) for hunk in ours] + [(hunk.old, hunk.old_end, 1) for hunk in theirs])
    number = 0
    while number < len(events):
        start, end, side = events[number]
        sides = {side}
        number += 1
        # Hunks of one side never touch each other, so a cluster grows only through hunks of the other.
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
        """Return the position of the ancestor's lines [start, end), including insertions at their edges. No hunk crosses either end."""
        shift = 0
        first = None
        for hunk in self._hunks:
            if hunk.old >= start and first is None:
                first = start + shift
            if hunk.old > end or (hunk.old == end and hunk.old_end > end):
                break
            shift = hunk.new_end - hunk.old_end
        return (start + shift if first is None else first), end + shift
