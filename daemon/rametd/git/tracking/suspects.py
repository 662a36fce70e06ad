"""Suspects: the paths of file events that may differ from the known tree, without ignored paths."""

import os
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from pathlib import Path

import pygit2

from rametd.git.context import GitContext
from rametd.git.tracking.events import Events
from rametd.git.tracking.rules import Rules, ignored, ignored_directories
from rametd.git.tracking.walking import Happened, is_below, is_directory, parents


@dataclass(frozen=True, slots=True)
class Judged:
    """``certain`` paths belong to the tree despite any rules. Git must say which of ``asked`` are
    ignored."""

    paths: AbstractSet[str]
    certain: AbstractSet[str]
    asked: AbstractSet[str]


class Suspects:
    """``dirty``: paths that may differ. ``renewed``: directories whose former content is
    invalid."""

    def __init__(self, git: GitContext, worktree: Path, git_dir: Path) -> None:
        self._git = git
        self._worktree = worktree
        self._git_dir = git_dir
        self.dirty: set[str] = set()
        self.renewed: set[str] = set()
        self._verdicts: dict[str, bool] = {}  # by path, whether it is ignored; of paths that the tree does not have

    @property
    def excluded(self) -> frozenset[str]:
        return frozenset(path for path, verdict in self._verdicts.items() if verdict)

    def clear(self) -> None:
        """Forget all suspects: the tree is known."""
        self.dirty, self.renewed = set(), set()

    def forget_rules(self) -> None:
        self._verdicts.clear()

    async def look_into(self, happened: Happened, events: Events, rules: Rules) -> tuple[set[str], Rules, bool]:
        """Watch new directories that are not ignored. Return all paths, including those in them,
        the updated rules, and whether rules or watches are no longer valid."""
        appeared = {
            path for path in happened.appeared if not any(parent in happened.appeared for parent in parents(path))
        }
        # Drop verdicts about a former directory of the same name, which may have had other rules.
        self._verdicts = {path: verdict for path, verdict in self._verdicts.items() if not is_below(path, appeared)}
        self.dirty = {path for path in self.dirty if not is_below(path, appeared)}
        self.renewed = {path for path in self.renewed if not is_below(path, appeared)} | appeared
        skipped = await ignored_directories(self._git, self._worktree, self._git_dir, sorted(appeared))
        skipped |= await self._ignored(await self._git.compute(self._real, appeared))
        rules = replace(
            rules, ignored=frozenset(path for path in rules.ignored if not is_below(path, appeared)) | skipped
        )
        paths = set(happened.paths)
        partial = False
        for directory in appeared - skipped:
            found = await self._git.compute(events.look_into, directory, rules.ignored.__contains__)
            paths |= found.files
            partial |= found.partial
        # Files that are tracked although ignored may be in directories that were skipped.
        return paths, rules, partial or any(is_below(path, appeared) for path in rules.tracked_ignored)

    def judge(self, paths: AbstractSet[str], tree: pygit2.Tree, rules: Rules) -> Judged:
        """Sort the paths. Blocks."""
        certain = {path for path in paths if path in tree or path in self.dirty or path in rules.tracked_ignored}
        asked = {
            path for path in paths - rules.tracked_ignored if path not in self._verdicts and not _is_entry(tree, path)
        }
        # A rule may apply only to directories or only to files, so a verdict about one is not valid
        # for the other.
        return Judged(paths, certain, {path for path in self._real(asked) if not is_directory(self._worktree / path)})

    async def add(self, judged: Judged) -> frozenset[str]:
        """Add suspects; return the paths for subscribers. Raise GitFailedError, also for a path
        whose type changed meanwhile."""
        excluded = await self._ignored(judged.asked)
        for path in judged.asked:
            self._verdicts[path] = path in excluded
        fresh = judged.certain | {path for path in judged.paths if self._verdicts.get(path) is False}
        self.dirty |= fresh
        return frozenset(path for path in fresh if not self._verdicts.get(path))

    async def _ignored(self, paths: AbstractSet[str]) -> frozenset[str]:
        return await ignored(self._git, self._worktree, self._git_dir, paths)

    def _real(self, paths: AbstractSet[str]) -> set[str]:
        """Return existing paths that do not lead through a symbolic link."""

        def is_there(path: str) -> bool:
            place = self._worktree / path
            above = (self._worktree / parent for parent in parents(path))
            return os.path.lexists(place) and not any(parent.is_symlink() for parent in above)

        return {path for path in paths if is_there(path)}


def _is_entry(tree: pygit2.Tree, path: str) -> bool:
    """Return whether the tree has the path as a file, link or submodule."""
    return path in tree and not isinstance(tree[path], pygit2.Tree)
