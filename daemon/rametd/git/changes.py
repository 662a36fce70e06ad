"""Differences between two trees, file by file and with renames, for predictions.

The walk skips equal subtrees, so its cost depends on the changed directories: 1 ms for eleven
changes among 40,000 files, while libgit2's own diff reads every entry. Blocks; never writes.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import pygit2

RENAME_PAIRS: Final = 20_000
"""If there are more pairs of another deleted and another added file, only identical files count as
renamed."""
SIMILAR: Final = 0.5
"""Share of the larger file's bytes from which two files are similar, as in git."""
SIMILAR_BYTES: Final = 1 << 20
"""Larger files count as renamed only if they are identical."""
TREE: Final = 0o040000


@dataclass(frozen=True, slots=True)
class Entry:
    """A file in a tree."""

    id: pygit2.Oid
    mode: int


@dataclass(frozen=True, slots=True)
class Change:
    """A file of the old tree (None: added) and its new state (None: deleted)."""

    old_path: str
    old: Entry | None
    new_path: str
    new: Entry | None

    @property
    def renamed(self) -> bool:
        return self.old is not None and self.new is not None and self.old_path != self.new_path


@dataclass(frozen=True, slots=True)
class Changes:
    """All changes from one tree to another."""

    tree: pygit2.Oid
    by_old: dict[str, Change] = field(default_factory=dict)  # of files that the old tree has
    added: dict[str, Change] = field(default_factory=dict)  # by new path

    @property
    def targets(self) -> dict[str, Change]:
        """Changes that put a file where the old tree has none, by new path."""
        return self.added | {each.new_path: each for each in self.by_old.values() if each.renamed}

    @property
    def paths(self) -> frozenset[str]:
        """All old and new paths."""
        sides = [*self.by_old.values(), *self.added.values()]
        return frozenset(path for each in sides for path in (each.old_path, each.new_path))


def changes(repository: pygit2.Repository, old: pygit2.Oid, new: pygit2.Oid) -> Changes:
    """Return the changes from the tree ``old`` to the tree ``new``. Raise KeyError for a missing
    tree."""
    deleted: dict[str, Entry] = {}
    added: dict[str, Entry] = {}
    found = Changes(new)
    for path, before, after in _walk(repository, old, new, ""):
        if before is None and after is not None:
            added[path] = after
        elif after is None and before is not None:
            deleted[path] = before
        else:
            found.by_old[path] = Change(path, before, path, after)
    for source, target in _renames(repository, deleted, added):
        found.by_old[source] = Change(source, deleted.pop(source), target, added.pop(target))
    found.by_old.update((path, Change(path, entry, path, None)) for path, entry in deleted.items())
    found.added.update((path, Change(path, None, path, entry)) for path, entry in added.items())
    return found


def _walk(
    repository: pygit2.Repository, old: pygit2.Oid | None, new: pygit2.Oid | None, prefix: str
) -> Iterator[tuple[str, Entry | None, Entry | None]]:
    """Yield the paths whose entry differs, in no order, with both entries; None for a missing
    one."""
    if old == new:
        return
    before, after = _entries(repository, old), _entries(repository, new)
    for name in before.keys() | after.keys():
        one, other = before.get(name), after.get(name)
        if one == other:
            continue
        path = prefix + name
        one_tree = one.id if one is not None and one.mode == TREE else None
        other_tree = other.id if other is not None and other.mode == TREE else None
        if one_tree is not None or other_tree is not None:
            yield from _walk(repository, one_tree, other_tree, path + "/")
        one_file, other_file = one if one_tree is None else None, other if other_tree is None else None
        if one_file is not None or other_file is not None:
            yield path, one_file, other_file


def _entries(repository: pygit2.Repository, tree: pygit2.Oid | None) -> dict[str, Entry]:
    if tree is None:
        return {}
    found: dict[str, Entry] = {}
    for each in repository[tree].peel(pygit2.Tree):
        assert each.name is not None, "an entry of a tree has a name"
        found[each.name] = Entry(each.id, int(each.filemode))
    return found


def _renames(
    repository: pygit2.Repository, deleted: dict[str, Entry], added: dict[str, Entry]
) -> list[tuple[str, str]]:
    """Return (old path, new path) pairs, each path once: the most similar first, and among equals
    those with the same name."""
    pairs = list(_identical(deleted, added))
    sources = set(deleted) - {source for source, _ in pairs}
    targets = set(added) - {target for _, target in pairs}
    if len(sources) * len(targets) > RENAME_PAIRS:
        return pairs
    scored: list[tuple[float, bool, str, str]] = []
    spans: dict[pygit2.Oid, Counter[bytes] | None] = {}
    for source in sources:
        for target in targets:
            before, after = deleted[source], added[target]
            if not before.mode >> 12 == after.mode >> 12 == 0o10:  # links and submodules have no lines
                continue
            score = _similarity(_spans(repository, before.id, spans), _spans(repository, after.id, spans))
            if score >= SIMILAR:
                scored.append((score, source.rpartition("/")[2] == target.rpartition("/")[2], source, target))
    for _, _, source, target in sorted(scored, key=lambda each: (-each[0], not each[1], each[2], each[3])):
        if source in sources and target in targets:
            pairs.append((source, target))
            sources.remove(source)
            targets.remove(target)
    return pairs


def _identical(deleted: dict[str, Entry], added: dict[str, Entry]) -> Iterator[tuple[str, str]]:
    """Yield the pairs of identical files of the same kind, those with the same name first. Never
    compares all with all: thousands of moved files may be equal, such as empty ones."""
    groups: dict[tuple[pygit2.Oid, int], tuple[list[str], list[str]]] = {}
    for side, entries in enumerate((deleted, added)):
        for path in sorted(entries):
            groups.setdefault((entries[path].id, entries[path].mode >> 12), ([], []))[side].append(path)
    for sources, targets in groups.values():
        named: dict[str, list[str]] = {}
        for target in reversed(targets):
            named.setdefault(target.rpartition("/")[2], []).append(target)
        rest: list[str] = []
        taken: set[str] = set()
        for source in sources:
            if known := named.get(source.rpartition("/")[2]):
                taken.add(known[-1])
                yield source, known.pop()
            else:
                rest.append(source)
        yield from zip(rest, (target for target in targets if target not in taken), strict=False)


def _spans(
    repository: pygit2.Repository, blob: pygit2.Oid, known: dict[pygit2.Oid, Counter[bytes] | None]
) -> Counter[bytes] | None:
    """Return the lines of a file with their counts; None if it is too large to compare, or
    empty."""
    if blob not in known:
        _, size = repository.odb.read_header(blob)
        known[blob] = (
            Counter(repository[blob].read_raw().splitlines(keepends=True)) if 0 < size <= SIMILAR_BYTES else None
        )
    return known[blob]


def _similarity(one: Counter[bytes] | None, other: Counter[bytes] | None) -> float:
    """Return the share of the larger file's bytes that are in common lines."""
    if one is None or other is None:
        return 0.0
    common = sum(min(count, other[line]) * len(line) for line, count in one.items())
    return common / max(sum(len(line) * count for line, count in each.items()) for each in (one, other))
