"""Inventory of Ramet's refs, branches and worktrees in a repository, for comparison with the rows.
Only reads."""

from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from rametd.git import branches
from rametd.git.context import GitContext
from rametd.git.loose import sweep
from rametd.git.registrations import REASON, Registration, registrations
from rametd.git.repository import RepositoryInfo, open_repository

PREFIX: Final = "refs/ramet/"


@dataclass(frozen=True, slots=True)
class Inventory:
    """``refs``: those below refs/ramet/, with their objects. ``made``: branch → path of the
    worktree for which it was created.

    ``lost``: branches with a commit that git has lost; they are in no other field.
    ``locks``: lock files of indexes and refs, with the time of their last change.
    """

    refs: dict[str, str]
    registrations: tuple[Registration, ...]
    checked_out: dict[str, Path]
    tips: dict[str, str]
    made: dict[str, Path]
    locks: tuple[tuple[Path, float], ...]
    lost: dict[str, str] = field(default_factory=dict)

    def ours(self, entry: Registration) -> bool:
        """Return whether Ramet registered a worktree."""
        return entry.locked == REASON


def take(repo: RepositoryInfo) -> Inventory:
    """Take the inventory of a repository. Blocks."""
    repository = open_repository(repo.common_dir)
    refs = {name: str(repository.references[name].target) for name in repository.references if name.startswith(PREFIX)}
    found = branches.list_branches(repo)
    made = {branch.name: path for branch in found if (path := branches.maker_of(repo, branch.name)) is not None}
    tips = {branch.name: branch.commit for branch in found}
    entries = registrations(repo.common_dir)
    candidates = [
        *(repo.common_dir / name for name in ("index.lock", "HEAD.lock", "packed-refs.lock", "config.lock")),
        *(entry.admin_dir / name for entry in entries for name in ("index.lock", "HEAD.lock")),
    ]
    locks: list[tuple[Path, float]] = []
    for path in candidates:
        try:
            locks.append((path, path.stat().st_mtime))
        except FileNotFoundError:
            continue
    return Inventory(
        refs=refs,
        registrations=entries,
        checked_out=branches.checked_out(repo),
        tips=tips,
        made=made,
        locks=tuple(locks),
        lost={
            name: commit
            for name in repository.branches.local
            if name not in tips and (commit := branches.lost_tip(repo, name)) is not None
        },
    )


def mirrored(repo: RepositoryInfo) -> tuple[str, ...]:
    """Return the remotes from which git fetches refs or branches over the repository's own, as in a
    mirror clone: with ``--prune`` git deletes those that the remote does not have, checked out or
    not. Blocks."""
    found = []
    for remote in open_repository(repo.common_dir).remotes:
        targets = [spec.rpartition(":")[2] for spec in remote.fetch_refspecs if ":" in spec]
        if remote.name is not None and any(fnmatchcase("refs/heads/any", target) for target in targets):
            found.append(remote.name)
    return tuple(found)


class Upkeep:
    """Ramet's refs, entries and branches in a repository, and damage there. Every method may raise
    the errors of `Git`."""

    def __init__(self, git: GitContext) -> None:
        self.inventory = git.threaded(take)
        self.mirrored = git.threaded(mirrored)
        self.sweep = git.threaded(sweep)
