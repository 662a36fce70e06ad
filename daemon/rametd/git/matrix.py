"""Compare the work of many sessions with each other; results for one pair are cached for the next.

A pair is compared from where its two histories part, so that sessions which started from one commit share everything but their own changes.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar, cast

import pygit2

from rametd.domain.conflicts import FileConflict
from rametd.git.changes import Changes, changes
from rametd.git.context import GitContext
from rametd.git.prediction import predict
from rametd.git.repository import head_of, open_repository
from rametd.git.tree import ignores_case

KEPT: Final = 512
"""Sets of changes that are kept; each of the touched files alone."""

Pair = tuple[str, str]
Key = TypeVar("Key")
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Work:
    """A piece of work: its files, and the commit that they are built on.

    ``base`` is the commit that it is to land on, "" where that is not known. What it has from there is not its own: two pieces of work meet
    only in files that both have changed, though one of them may have been begun later than the other.
    """

    tree: str
    head: str
    base: str = ""


class Matrix:
    """Of one repository. Its methods block in threads of the git layer, one comparison at a time."""

    def __init__(self, git: GitContext, common_dir: Path) -> None:
        self._git = git
        self._common_dir = common_dir
        self._bases: dict[frozenset[str], str] = {}  # of two commits, the tree where they part
        self._changes: dict[tuple[str, str], Changes] = {}  # from tree to tree
        self._ignore_case: bool | None = None

    async def compare(self, works: Mapping[str, Work], pairs: Collection[Pair]) -> dict[Pair, tuple[FileConflict, ...]]:
        """What both of each pair change. ``pairs`` are of the keys of ``works``. Raises GitFailedError."""
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
        """The paths that a piece of work has changed since it parted from its base; None where that is not known."""
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
    """Drop the older half of the cache: a dictionary remembers its order."""
    if len(kept) >= KEPT:
        for key in list(kept)[: KEPT // 2]:
            del kept[key]


def head_commit(worktree: Path) -> str | None:
    """The commit that a worktree has checked out, None before the first one."""
    return head_of(open_repository(worktree)).commit


def tree_of(common_dir: Path, commit: str) -> str:
    """The tree of a commit that exists."""
    return str(open_repository(common_dir)[commit].peel(pygit2.Tree).id)
