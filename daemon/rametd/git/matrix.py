"""Compare the work of many sessions with each other, with caches that all pairs share.

A pair is compared from the merge base of its histories, so that for sessions with one starting commit only their own changes count.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar, cast

import pygit2

from rametd.domain.conflicts import FileConflict
from rametd.git.changes import Changes, changes
from rametd.git.commits import ignores_case
from rametd.git.context import GitContext
from rametd.git.prediction import predict
from rametd.git.repository import open_repository

KEPT: Final = 512
"""Most cached sets of changed files."""

Pair = tuple[str, str]
Key = TypeVar("Key")
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Work:
    """A session's work: its tree, and the commit that it is based on.

    ``base`` is the commit that it will land on, "" if unknown. Changes that the work has from there are not its own: two sessions
    conflict only in files that both have changed, even if one began later.
    """

    tree: str
    head: str
    base: str = ""


class Matrix:
    """Comparisons within one repository. They run in threads of the git layer, one at a time."""

    def __init__(self, git: GitContext, common_dir: Path) -> None:
        self._git = git
        self._common_dir = common_dir
        self._bases: dict[frozenset[str], str] = {}  # two commits → the tree of their merge base
        self._changes: dict[tuple[str, str], Changes] = {}  # from tree to tree
        self._ignore_case: bool | None = None

    async def compare(self, works: Mapping[str, Work], pairs: Collection[Pair]) -> dict[Pair, tuple[FileConflict, ...]]:
        """Return the paths that both sides of each pair change. ``pairs`` are keys of ``works``. Raise GitFailedError."""
        return await self._git.compute(self._compare, works, pairs)

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
        """Return the paths that the work has changed since its base, or None if the base is unknown."""
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


def _make_room(kept: dict[Key, Value]) -> None:
    """Drop the older half of the cache, by the dictionary's order."""
    if len(kept) >= KEPT:
        for key in list(kept)[: KEPT // 2]:
            del kept[key]
