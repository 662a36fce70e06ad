"""What is left of a worktree whose directory is gone, deleted or moved by hand: its entry, which alone knows what it had checked out and staged.

A detached HEAD, what was staged, a merge that was under way: no branch has any of it, and it goes with the entry.
"""

from dataclasses import dataclass
from pathlib import Path

import pygit2

from rametd.domain.errors import GitFailedError
from rametd.git.context import GitContext
from rametd.git.inventory import reachable
from rametd.git.kept import quoted
from rametd.git.registrations import Registration, left_inside
from rametd.git.repository import Head, RepositoryInfo, branch_tip, commit_exists, last_head, open_repository
from rametd.git.snapshot import write_commit
from rametd.git.underway import UnderWay, staged_paths, staged_tree, under_way


@dataclass(frozen=True, slots=True)
class Remains:
    """``staged``: paths that the index has otherwise than what was checked out; ``unread``: git's words where it cannot tell."""

    git_dir: Path
    head: Head
    staged: tuple[str, ...]
    under_way: UnderWay
    unread: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Told:
    """``notes`` are lines as `kept` reads them, ``commits`` those that they name, ``words`` are for people."""

    notes: tuple[str, ...] = ()
    commits: tuple[str, ...] = ()
    words: tuple[str, ...] = ()


async def look(git: GitContext, repo: RepositoryInfo, entry: Registration) -> Remains:
    """By the files in the entry's directory, whatever is at its path."""
    head = await last_known_head(git, repo, entry.admin_dir, await git.compute(_head_of, repo, entry))
    stood = head.commit or await git.compute(_stood_at, repo, entry.admin_dir)
    begun = await git.compute(under_way, repo, entry.admin_dir)
    try:
        staged = await staged_paths(git, entry.admin_dir, stood)
    except GitFailedError as error:
        return Remains(entry.admin_dir, head, (), begun, (f"what was staged: {error.message}",))
    return Remains(entry.admin_dir, head, staged, begun)


async def last_known_head(git: GitContext, repo: RepositoryInfo, git_dir: Path, head: Head) -> Head:
    """The same; where its branch was deleted under it, with the commit that stood there last, if nothing else has that."""
    if head.commit is not None or head.branch is None:
        return head
    last = await git.compute(_stood_at, repo, git_dir)
    return head if last is None or await reachable(git, repo, last) else Head(head.branch, last)


async def notes_of(git: GitContext, repo: RepositoryInfo, remains: Remains, branch: str) -> list[str]:
    """The lines that `kept` reads of it; ``branch`` is what is expected to be checked out."""
    notes = [*under_way_notes(remains.under_way), *head_notes(remains.head, branch)]
    if remains.staged:
        tree = await staged_tree(git, remains.git_dir)
        made = await git.compute(lambda: write_commit(open_repository(repo.common_dir), tree, "index", []))
        notes.append(f"index {made}")
    return notes


def under_way_notes(found: UnderWay) -> list[str]:
    return [
        *(f"begun {what}" for what in found.what),
        *(f"pending {commit}" for commit in found.pending),
        *(f"autostash {commit}" for commit in found.autostashes),
    ]


def head_notes(head: Head, branch: str) -> list[str]:
    """What is checked out, where that is not ``branch``."""
    if head.commit is None or head.branch == branch:
        return []
    return [f"head {head.commit}", *([f"on {quoted(head.branch)}"] if head.branch is not None else [])]


def commits_in(notes: list[str]) -> list[str]:
    """The commits that nothing but these lines would keep."""
    return [line.split(" ")[1] for line in notes if line.startswith(("index ", "pending ", "autostash "))]


async def inside(git: GitContext, repo: RepositoryInfo, worktree: Path) -> Told:
    """Of the worktrees that lay below one, and whose entries go with it: kept where something is in the entry alone."""
    notes: list[str] = []
    commits: list[str] = []
    words: list[str] = []
    for place, entry in (await git.compute(left_inside, repo.common_dir, worktree)).items():
        remains = await look(git, repo, entry)
        if not await holds_something(git, repo, remains):
            continue
        made = await _commit(git, repo, remains, f"worktree: {quoted(place)}")
        notes.append(f"worktree {made} {quoted(place)}")
        commits.append(made)
        words.append(f"{describe(place, entry)} was gone already: what git had of it is kept, and comes back")
    return Told(tuple(notes), tuple(commits), tuple(words))


async def holds_something(git: GitContext, repo: RepositoryInfo, remains: Remains) -> bool:
    """Whether the entry alone has something of it."""
    commit = remains.head.commit
    return bool(remains.staged or remains.under_way.what or remains.unread) or (
        commit is not None and not await reachable(git, repo, commit)
    )


def describe(place: str, entry: Registration) -> str:
    """A worktree inside another, in words."""
    what = f"of branch {entry.branch}" if entry.branch else "with a detached HEAD"
    lock = f", locked: {entry.locked}" if entry.locked else ", locked" if entry.locked is not None else ""
    return f"the worktree {place} inside it ({what}{lock})"


async def _commit(git: GitContext, repo: RepositoryInfo, remains: Remains, title: str) -> str:
    notes = await notes_of(git, repo, remains, "")
    head = remains.head.commit

    def commit() -> str:
        repository = open_repository(repo.common_dir)
        tree = repository[head].peel(pygit2.Tree).id if head is not None else repository.TreeBuilder().write()
        parents = dict.fromkeys([*([head] if head is not None else []), *commits_in(notes)])
        return write_commit(repository, str(tree), "\n".join([title, "", *notes]).rstrip() + "\n", list(parents))

    return await git.compute(commit)


def _head_of(repo: RepositoryInfo, entry: Registration) -> Head:
    if entry.branch is not None:
        return Head(entry.branch, branch_tip(repo, entry.branch))
    return Head(None, entry.head if entry.head and commit_exists(repo, entry.head) else None)


def _stood_at(repo: RepositoryInfo, git_dir: Path) -> str | None:
    """What was checked out last, though its branch is gone."""
    last = last_head(git_dir)
    return last if last is not None and commit_exists(repo, last) else None
