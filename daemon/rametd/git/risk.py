"""Work at risk: content of a worktree and commits of its branch that exist nowhere else.

If the directory is gone, only git's entry of it may have a detached HEAD, staged changes or an
unfinished merge (`StaleEntry`), which are lost with the entry.
"""

import os
from collections.abc import Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

from rametd.domain.errors import GitFailedError
from rametd.git.commits import reachable
from rametd.git.context import GitContext
from rametd.git.file_trees import private_index, write_tree
from rametd.git.inside import git_dir_at, only_here, orphaned_modules, places
from rametd.git.process import at, failed
from rametd.git.registrations import Registration, locate, split_inside, stale_entry_at
from rametd.git.repository import Head, RepositoryInfo, branch_tip, commit_exists, last_head
from rametd.git.underway import UnderWay, staged_paths, under_way
from rametd.git.unread import failed_filter, hidden, is_unborn, unhide, unopened


@dataclass(frozen=True, slots=True)
class StaleEntry:
    """``staged``: paths whose index differs from the commit. ``unread``: git's errors."""

    git_dir: Path
    head: Head
    staged: tuple[str, ...]
    under_way: UnderWay
    unread: tuple[str, ...] = ()


async def look(git: GitContext, repo: RepositoryInfo, entry: Registration) -> StaleEntry:
    """Read the entry's directory in `.git/worktrees`, not the worktree itself."""
    head = await last_known_head(git, repo, entry.admin_dir, await git.compute(_head_of, repo, entry))
    stood = head.commit or await git.compute(_last_commit, repo, entry.admin_dir)
    begun = await git.compute(under_way, repo, entry.admin_dir)
    try:
        staged = await staged_paths(git, entry.admin_dir, stood)
    except GitFailedError as error:
        return StaleEntry(entry.admin_dir, head, (), begun, (f"what was staged: {error.message}",))
    return StaleEntry(entry.admin_dir, head, staged, begun)


async def last_known_head(git: GitContext, repo: RepositoryInfo, git_dir: Path, head: Head) -> Head:
    """Return ``head``. If its branch was deleted, add the last commit, unless another ref reaches
    that."""
    if head.commit is not None or head.branch is None:
        return head
    last = await git.compute(_last_commit, repo, git_dir)
    return head if last is None or await reachable(git, repo, last) else Head(head.branch, last)


async def has_unique_work(git: GitContext, repo: RepositoryInfo, stale: StaleEntry) -> bool:
    """Return whether only the entry has some of the work."""
    commit = stale.head.commit
    return bool(stale.staged or stale.under_way.what or stale.unread) or (
        commit is not None and not await reachable(git, repo, commit)
    )


def describe(place: str, entry: Registration) -> str:
    """Describe a worktree inside another one."""
    what = f"of branch {entry.branch}" if entry.branch else "with a detached HEAD"
    lock = f", locked: {entry.locked}" if entry.locked else ", locked" if entry.locked is not None else ""
    return f"the worktree {place} inside it ({what}{lock})"


def _head_of(repo: RepositoryInfo, entry: Registration) -> Head:
    if entry.branch is not None:
        return Head(entry.branch, branch_tip(repo, entry.branch))
    return Head(None, entry.head if entry.head and commit_exists(repo, entry.head) else None)


def _last_commit(repo: RepositoryInfo, git_dir: Path) -> str | None:
    """Return the last checked-out commit, even if its branch is gone."""
    last = last_head(git_dir)
    return last if last is not None and commit_exists(repo, last) else None


@dataclass(frozen=True, slots=True)
class Risk:
    """Paths are relative to the worktree; an untracked directory is one path, with a slash. Commits
    are (commit, subject) pairs, newest first.

    ``starts``: the branch's tip and the checked-out commit, from which the search for commits
    began. ``unread``: git's messages about unreadable directories. ``inside``: descriptions of
    content in nested worktrees and repositories, and of autostashes, that only git directories
    have. ``under_way``: unfinished merges and the like. ``gone``: the directory was deleted or
    moved by hand, and only the content of git's entry is at risk.
    """

    uncommitted: tuple[str, ...]
    untracked: tuple[str, ...]
    unique_commits: tuple[tuple[str, str], ...]
    starts: tuple[str, ...] = field(default=(), compare=False)
    unread: tuple[str, ...] = ()
    inside: tuple[str, ...] = ()
    under_way: tuple[str, ...] = ()
    gone: bool = field(default=False, compare=False)

    def __bool__(self) -> bool:
        held = (self.uncommitted, self.untracked, self.unique_commits, self.unread, self.inside, self.under_way)
        return any(held)


@dataclass(frozen=True, slots=True)
class _Found:
    """Status of a worktree; ``commits``: the checked-out one, and those of an unfinished merge or
    the like."""

    uncommitted: tuple[str, ...] = ()
    untracked: tuple[str, ...] = ()
    commits: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    under_way: UnderWay = field(default_factory=UnderWay)
    gone: bool = False


async def work_at_risk(
    git: GitContext,
    repo: RepositoryInfo,
    worktree: Path,
    branch: str,
    base_commit: str | None,
    known: Sequence[Registration] | None = None,
) -> Risk:
    """Return the work that removing the worktree and its branch would lose, also for a missing or
    damaged directory. Another directory at its path is not at risk, because it would not be
    removed.

    A commit is unique if no other local branch, remote branch or tag reaches it, nor
    ``base_commit``. ``known``: see `registered_at`.
    """
    found = await _status(git, repo, worktree, known)
    tip = await git.compute(branch_tip, repo, branch)
    starts = tuple(dict.fromkeys((*([tip] if tip is not None else []), *found.commits)))
    unique = await _unique_commits(git, repo, starts, branch, base_commit) if starts else ()
    git_dir, _ = await git.compute(locate, repo.common_dir, worktree)
    intact, inside, unfilled = await _inside(git, repo, worktree, git_dir, known)
    inside += _autostashes(found.under_way)
    return Risk(
        uncommitted=found.uncommitted,
        untracked=(*(path for path in found.untracked if path.rstrip("/") not in intact), *unfilled),
        unique_commits=unique,
        starts=starts,
        unread=found.unread,
        inside=tuple(inside),
        under_way=found.under_way.what,
        gone=found.gone,
    )


async def inside(git: GitContext, repo: RepositoryInfo, worktree: Path, git_dir: Path) -> tuple[list[str], list[str]]:
    """Return the commits of an unfinished git command, and descriptions of nested content, of a
    worktree to shelve."""
    going = await git.compute(under_way, repo, git_dir)
    intact, words, unfilled = await _inside(git, repo, worktree, git_dir)
    for place, entry in intact.items():
        if not await work_at_risk(git, repo, worktree / place, "", None):
            words.remove(describe(place, entry))
    files = [f"the files in {place} inside it" for place in unfilled]
    return [*going.pending], [*words, *files, *_autostashes(going)]


def _autostashes(going: UnderWay) -> list[str]:
    what = " or ".join(going.what)
    return [f"what was uncommitted before a {what} that is under way ({commit[:12]})" for commit in going.autostashes]


async def _inside(
    git: GitContext,
    repo: RepositoryInfo,
    worktree: Path,
    git_dir: Path | None,
    known: Sequence[Registration] | None = None,
) -> tuple[Mapping[str, Registration], list[str], list[str]]:
    """Return nested worktrees of the same repository, descriptions of nested content, and
    unpopulated submodules with files."""
    intact, left = await git.compute(split_inside, repo.common_dir, worktree, known)
    words = [describe(place, entry) for place, entry in intact.items()]
    for place, entry in left.items():
        if await has_unique_work(git, repo, await look(git, repo, entry)):
            words.append(f"{describe(place, entry)}, whose directory is gone")
    if git_dir is None or git_dir == repo.common_dir:
        return intact, words, []
    unfilled, found = await _repositories(git, repo, worktree, git_dir, intact)
    return intact, [*words, *found], unfilled


async def _repositories(
    git: GitContext, repo: RepositoryInfo, worktree: Path, git_dir: Path, apart: Collection[str]
) -> tuple[list[str], list[str]]:
    """Return unpopulated submodules that have files, and descriptions of content that only nested
    repositories have. Git reports neither; for a nested repository among untracked files it reports
    only the directory."""
    unfilled: list[str] = []
    words: list[str] = []
    known: list[Path] = []
    ahead = [("", worktree, git_dir)]
    while ahead:
        above, directory, around = ahead.pop()
        for name in await places(git, directory, around, untracked=False):
            place = f"{above}{name}"
            inner = await git.compute(git_dir_at, worktree / place)
            if place in apart:
                continue
            if inner is None:
                unfilled += [f"{place}/"] if await git.compute(_has_files, worktree / place) else []
                continue
            known.append(inner)
            module = inner.relative_to(git_dir / "modules") if inner.is_relative_to(git_dir / "modules") else None
            elsewhere = repo.common_dir / "modules" / module if module is not None else None
            own = await only_here(git, worktree / place, inner, elsewhere)
            words += [f"what only the repository {place} inside it has ({', '.join(own)})"] if own else []
            ahead.append((f"{place}/", worktree / place, inner))
    for gone, own in (await orphaned_modules(git, repo.common_dir, git_dir, known)).items():
        words.append(f"what only the submodule {gone}, which is not there any more, has ({', '.join(own)})")
    return unfilled, words


def _has_files(directory: Path) -> bool:
    return any(names or os.path.lexists(f"{folder}/.git") for folder, _, names in os.walk(directory))


async def unstored(git: GitContext, repo: RepositoryInfo, worktree: Path) -> tuple[str, ...]:
    """Try to store each file; return git's message about each unreadable one. Return nothing if the
    directory is not the worktree."""
    git_dir, _ = await git.compute(locate, repo.common_dir, worktree)
    if git_dir is None:
        return ()
    written = await write_tree(git, worktree, git_dir)
    # A snapshot saves the files of a nested repository separately.
    return tuple(line for line in written.skipped if not is_unborn(line))


async def _left(git: GitContext, repo: RepositoryInfo, worktree: Path, known: Sequence[Registration] | None) -> _Found:
    """Return the work in git's entry of a missing worktree."""
    entry = await git.compute(stale_entry_at, repo.common_dir, worktree, known)
    if entry is None:
        return _Found()
    left = await look(git, repo, entry)
    commits = (*([left.head.commit] if left.head.commit is not None else []), *left.under_way.pending)
    return _Found(left.staged, (), commits, left.unread, left.under_way, gone=True)


async def _status(
    git: GitContext, repo: RepositoryInfo, worktree: Path, known: Sequence[Registration] | None
) -> _Found:
    git_dir, _ = await git.compute(locate, repo.common_dir, worktree)
    if git_dir is None:
        return await _left(git, repo, worktree, known)
    status = (
        *("status", "--porcelain=v2", "--branch", "-z"),
        *("--untracked-files=normal", "--ignore-submodules=none", "--no-renames"),
    )
    there = at(git_dir, worktree)
    lenient: list[str] = []
    environment = {"GIT_OPTIONAL_LOCKS": "0"}
    async with AsyncExitStack() as stack:
        if marked := await hidden(git, worktree, there, git_dir / "index"):
            index = await stack.enter_async_context(private_index(git, git_dir))
            await unhide(git, worktree, there, index, marked)
            environment["GIT_INDEX_FILE"] = str(index)
        done = await git.process.run(worktree, *there, *status, environment=environment)
        while (driver := failed_filter(done)) and f"filter.{driver}.required=false" not in lenient:
            # A changed file that cannot be compared counts as different.
            lenient += ["-c", f"filter.{driver}.required=false"]
            done = await git.process.run(worktree, *there, *lenient, *status, environment=environment)
    if done.returncode != 0:
        raise failed(done, ("status",))
    uncommitted: list[str] = []
    untracked: list[str] = []
    head = None
    for record in os.fsdecode(done.stdout).split("\0"):
        kind, _, rest = record.partition(" ")
        if kind == "#" and rest.startswith("branch.oid "):
            head = rest.removeprefix("branch.oid ")
        elif kind == "?":
            untracked.append(rest)
        elif kind == "1":
            uncommitted.append(rest.split(" ", 7)[7])
        elif kind == "u":
            uncommitted.append(rest.split(" ", 9)[9])
    going = await git.compute(under_way, repo, git_dir)
    if git_dir == repo.common_dir and not await git.compute((worktree / ".git").is_dir):
        head, going = None, UnderWay()  # git reported the state of the main worktree, because the entry is gone
    elif head == "(initial)":  # or its branch was deleted under it
        last = await git.compute(last_head, git_dir)
        head = last if last is not None and await git.compute(commit_exists, repo, last) else None
    commits = (*([head] if head is not None else []), *going.pending)
    return _Found(tuple(uncommitted), tuple(untracked), commits, unopened(done), going)


async def _unique_commits(
    git: GitContext, repo: RepositoryInfo, starts: Sequence[str], branch: str, base_commit: str | None
) -> tuple[tuple[str, str], ...]:
    known = [base_commit] if base_commit is not None and await git.compute(commit_exists, repo, base_commit) else []
    if set(starts) <= set(known):
        return ()
    output = await git.process.read(
        repo.common_dir,
        *("log", "-z", "--format=%H %s", *starts, "--not", *known),
        *(f"--exclude={branch}", "--branches", "--remotes", "--tags", "--"),
    )
    lines = (record.partition(" ") for record in output.decode(errors="replace").split("\0") if record)
    return tuple((commit, subject) for commit, _, subject in lines)
