"""Stale entries: git's entry of a worktree whose directory is gone, which may have the only record of its HEAD and index.

A detached HEAD, staged changes, an unfinished merge: no branch has them, and they are lost with the entry.
"""

from dataclasses import dataclass
from pathlib import Path

from rametd.domain.errors import GitFailedError
from rametd.git.commits import reachable
from rametd.git.context import GitContext
from rametd.git.registrations import Registration
from rametd.git.repository import Head, RepositoryInfo, branch_tip, commit_exists, last_head
from rametd.git.underway import UnderWay, staged_paths, under_way


@dataclass(frozen=True, slots=True)
class StaleEntry:
    """``staged``: paths whose index differs from the commit. ``unread``: git's errors."""

    git_dir: Path
    head: Head
    staged: tuple[str, ...]
    under_way: UnderWay
    unread: tuple[str, ...] = ()


async def look(git: GitContext, repo: RepositoryInfo, entry: Registration) -> StaleEntry:
    """Read the entry's directory; what is at the worktree's path does not count."""
    head = await last_known_head(git, repo, entry.admin_dir, await git.compute(_head_of, repo, entry))
    stood = head.commit or await git.compute(_stood_at, repo, entry.admin_dir)
    begun = await git.compute(under_way, repo, entry.admin_dir)
    try:
        staged = await staged_paths(git, entry.admin_dir, stood)
    except GitFailedError as error:
        return StaleEntry(entry.admin_dir, head, (), begun, (f"what was staged: {error.message}",))
    return StaleEntry(entry.admin_dir, head, staged, begun)


async def last_known_head(git: GitContext, repo: RepositoryInfo, git_dir: Path, head: Head) -> Head:
    """``head``; if its branch was deleted, with the last commit, unless that is reachable otherwise."""
    if head.commit is not None or head.branch is None:
        return head
    last = await git.compute(_stood_at, repo, git_dir)
    return head if last is None or await reachable(git, repo, last) else Head(head.branch, last)


async def holds_something(git: GitContext, repo: RepositoryInfo, stale: StaleEntry) -> bool:
    """Return whether only the entry has some of the work."""
    commit = stale.head.commit
    return bool(stale.staged or stale.under_way.what or stale.unread) or (
        commit is not None and not await reachable(git, repo, commit)
    )


def describe(place: str, entry: Registration) -> str:
    """Describe a worktree inside another."""
    what = f"of branch {entry.branch}" if entry.branch else "with a detached HEAD"
    lock = f", locked: {entry.locked}" if entry.locked else ", locked" if entry.locked is not None else ""
    return f"the worktree {place} inside it ({what}{lock})"


def _head_of(repo: RepositoryInfo, entry: Registration) -> Head:
    if entry.branch is not None:
        return Head(entry.branch, branch_tip(repo, entry.branch))
    return Head(None, entry.head if entry.head and commit_exists(repo, entry.head) else None)


def _stood_at(repo: RepositoryInfo, git_dir: Path) -> str | None:
    """Return the last checked-out commit, even if its branch is gone."""
    last = last_head(git_dir)
    return last if last is not None and commit_exists(repo, last) else None
