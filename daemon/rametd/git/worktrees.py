"""Create and remove linked worktrees.

Every step can be interrupted and repeated. Creation: branch → entry and `.git` file (by git,
without a checkout) → files. Removal: rename the directory (atomic: from then on the path is free,
and no half-deleted directory can be mistaken for work) → entry → branch → files. Steps on shared
state hold the repository's lock; steps that only read and write files do not.

Ramet locks its worktrees (`git worktree lock`). With Ramet's reason, git then refuses a `git
worktree prune` while their disk is unmounted, and a `git worktree remove` under a running agent.
The removal here does not use git, and ignores the lock.
"""

import asyncio
import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import pygit2

from rametd.domain.errors import (
    BranchTakenError,
    GitFailedError,
    PathTakenError,
    RefNotFoundError,
    WorktreeChangedError,
)
from rametd.git import branches, names, removal
from rametd.git.context import GitContext
from rametd.git.process import Completed, at, failed
from rametd.git.registrations import (
    REASON,
    WORKTREE_CONFIG,
    Registration,
    diverted,
    existing_git_dir,
    may_exist,
    registered_at,
    registrations,
    verify_worktree,
)
from rametd.git.removal import Removal, delete_tree, remove_worktree, undo_create
from rametd.git.repository import RepositoryInfo, branch_tip, commit_exists, head_of, last_head, open_repository
from rametd.git.risk import unstored, work_at_risk
from rametd.git.sharing import share
from rametd.git.submodules import populate_submodules
from rametd.git.tracking import Trackers


def _and_above(path: str) -> list[str]:
    pure = PurePosixPath(path)
    return [str(pure), *map(str, pure.parents)]


@dataclass(frozen=True, slots=True)
class Worktree:
    """A worktree in git's list. ``branch`` is None if HEAD is detached, ``commit`` None on an
    unborn branch. ``exists``: its directory exists."""

    path: Path
    branch: str | None
    commit: str | None
    locked: str | None
    exists: bool
    is_main: bool


def list_worktrees(repo: RepositoryInfo) -> tuple[Worktree, ...]:
    """Return all worktrees, the main one first (none in a bare repository)."""
    main: tuple[Worktree, ...] = ()
    if not repo.is_bare:
        head = head_of(open_repository(repo.common_dir))
        main = (Worktree(repo.root, head.branch, head.commit, None, repo.root.is_dir(), is_main=True),)
    linked = [
        Worktree(
            path=entry.path,
            branch=entry.branch,
            commit=branch_tip(repo, entry.branch) if entry.branch is not None else entry.head or None,
            locked=entry.locked,
            exists=may_exist(entry.path),
            is_main=False,
        )
        for entry in registrations(repo.common_dir)
        if entry.path is not None
    ]
    return main + tuple(linked)


def is_complete(path: Path, branch: str) -> bool:
    """Return whether an earlier run wrote all files: git writes the index last."""
    try:
        return (verify_worktree(path, branch) / "index").is_file()
    except WorktreeChangedError:
        return False


def _leftover(repo: RepositoryInfo, path: Path) -> bool:
    """Return whether an interrupted run left ``path``: Ramet registered it, and it has no index, so
    no work can be in it."""
    entries = registered_at(repo.common_dir, path)
    return bool(entries) and all(
        removal.is_unfinished(entry) and not (entry.admin_dir / "index").exists() for entry in entries
    )


def _require_possible(repo: RepositoryInfo, path: Path, branch: str, commit: str, *, new_branch: bool) -> None:
    """Raise every refusal before anything is created."""
    if registered := registered_at(repo.common_dir, path):
        hint = f"{make_room(repo, path, locked=any(entry.locked is not None for entry in registered))}; then try again"
        raise PathTakenError(f"a worktree is registered at {path}", hint=hint, path=str(path))
    if path.is_symlink() or (path.exists() and not (path.is_dir() and not any(path.iterdir()))):
        raise PathTakenError(f"{path} exists already", hint="move it away, then try again", path=str(path))
    tip = branch_tip(repo, branch)
    if not new_branch and tip is None:
        raise RefNotFoundError(f"there is no branch {branch}", hint="leave out --existing to create it")
    if new_branch and not commit_exists(repo, commit):
        raise RefNotFoundError(f"{commit} is not a commit of {repo.name}", hint="name a branch, a tag or a commit")
    resumed = new_branch and tip == commit and branches.made_for(repo, branch, path)
    branches.require_free(repo, branch, new=new_branch and not resumed)


def make_room(repo: RepositoryInfo, path: Path, *, locked: bool) -> str:
    """Return the hint with the command that frees a path where another worktree is registered."""
    git = ("git", "-C", str(repo.root), "worktree")
    force = ("-f", "-f") if locked else ()
    if path.is_dir():
        aside = str(path.with_name(f"{path.name}.aside"))
        return f"move it: `{shlex.join([*git, 'move', *force, str(path), aside])}`"
    return f"its directory is gone, have git forget it: `{shlex.join([*git, 'remove', *force, str(path)])}`"


async def register(
    git: GitContext,
    repo: RepositoryInfo,
    path: Path,
    branch: str | None,
    target: str,
    lock: int,
) -> None:
    """Create entry and `.git` file under the repository's lock, without files; ``branch`` None: a
    detached HEAD at ``target``."""
    done = await git.process.run(
        repo.standpoint,
        *("worktree", "add", "--no-checkout", "--lock", "--reason", REASON),
        *(() if branch else ("--detach",)),
        *("--", str(path), target),
        lock=lock,
    )
    try:
        await git.compute(_adjust_entry, repo, path)
        await git.verified(path, branch)
    except WorktreeChangedError:
        raise _refused(done, target) from None


def _adjust_entry(repo: RepositoryInfo, path: Path) -> None:
    """Make ``path`` the top of a new worktree if the repository's configuration names another
    directory for all worktrees (see `diverted`), and give the entry the permissions of a shared
    repository: git creates it by the umask.
    """
    git_dir = existing_git_dir(path)
    if git_dir is None:
        return
    share(repo.common_dir, git_dir)
    if diverted(git_dir, path, repo.common_dir) is not None:
        pygit2.Config(str(git_dir / WORKTREE_CONFIG))["core.worktree"] = str(path)


def _refused(done: Completed, branch: str) -> BranchTakenError | GitFailedError:
    # The branch is in a rebase or a bisect in another worktree. Only git knows all files that
    # record this.
    if "already checked out" in done.words or "already used by worktree" in done.words:
        return BranchTakenError(
            done.words, hint="finish what runs there, or choose another name with --branch", branch=branch
        )
    return failed(done, ("worktree add",))


async def fill(git: GitContext, path: Path, branch: str | None, commit: str = "HEAD") -> None:
    """Check out the files, as `git worktree add` does, but outside the lock, so that ten worktrees
    can fill concurrently.

    With another ``commit``, for a worktree without a branch, write only the files that differ.
    """
    git_dir = await git.verified(path, branch)
    # Name both directories: if the .git file vanished now, git would find a repository further up
    # and reset that.
    there = at(git_dir, path)
    done = await git.process.run(path, *there, "reset", "--hard", "--quiet", "--no-recurse-submodules", commit)
    if done.returncode == 0:
        return
    state = await git.process.run(path, *there, "status", "--porcelain", "--untracked-files=no", "--ignore-submodules")
    if state.returncode != 0 or state.stdout or commit != "HEAD":
        raise failed(done, ("checkout",))


def head_commit(worktree: Path) -> str | None:
    """Return the commit that a worktree has checked out, None before the first one. Blocks."""
    return head_of(open_repository(worktree)).commit


def last_checked_out(entry: Registration) -> str | None:
    """Return the commit that a worktree had checked out last, also if its branch is gone; None
    without a record. Blocks."""
    return last_head(entry.admin_dir)


class Worktrees:
    """Worktrees of sessions and people. Every method may raise the errors of `Git`."""

    def __init__(self, git: GitContext, trackers: Trackers) -> None:
        self._git = git
        self._trackers = trackers
        self.list = git.threaded(list_worktrees)
        self.registrations = git.threaded(lambda repo: registrations(repo.common_dir))
        self.verify = git.verified
        self.head_commit = git.threaded(head_commit)
        self.last_checked_out = git.threaded(last_checked_out)
        self.work_at_risk = git.bind(work_at_risk)
        self.unstored = git.bind(unstored)
        self.remove = git.bind(remove_worktree)

    async def create(
        self, repo: RepositoryInfo, path: Path, branch: str, commit: str, *, new_branch: bool
    ) -> tuple[str, ...]:
        """Create a linked, locked worktree at ``path`` with ``branch`` checked out; create the
        branch at ``commit`` if ``new_branch``.

        Atomic, and safe to repeat after a kill at any point. Sparse checkout and populated
        submodules are those of the worktree that ``repo`` was discovered from; return a line for
        each submodule that could not be populated. Raise BadNameError, BranchTakenError
        (``data["worktree"]``), PathTakenError, RefNotFoundError before creating anything.
        """
        git = self._git
        names.check_branch_name(branch)
        ours = done = False
        try:
            async with git.locks.hold(repo.common_dir) as lock:
                if await git.compute(_leftover, repo, path):
                    await removal.detach(git, repo, path, lock)
                if not await git.compute(is_complete, path, branch):
                    await git.compute(_require_possible, repo, path, branch, commit, new_branch=new_branch)
                    ours = True
                    if new_branch and await git.compute(branch_tip, repo, branch) is None:
                        await branches.create_branch(git, repo, path, branch, commit, lock)
                    await register(git, repo, path, branch, branch, lock)
            await removal.sweep(git, repo, path)
            async with git.checkouts:
                if ours:
                    await fill(git, path, branch)
                warnings = await populate_submodules(git, repo.worktree_root, path)
            done = True
        finally:
            if ours and not done:
                # Shielded, so that a second cancellation does not interrupt the clean-up.
                await asyncio.shield(removal.undo_create(git, repo, path, branch, commit if new_branch else None))
        return warnings

    async def undo_create(
        self, repo: RepositoryInfo, path: Path, branch: str, created_branch_at: str | None
    ) -> Removal:
        """See `removal.undo_create`."""
        await self._trackers.unwatch(path)
        return await undo_create(self._git, repo, path, branch, created_branch_at)

    async def delete_tree(self, folder: Path) -> None:
        """Delete a directory with its content, also read-only parts; do nothing if it does not
        exist."""
        await self._git.delete(delete_tree, folder)

    async def tracked_below(self, worktree: Path, name: str) -> tuple[str, ...]:
        """Return paths in the worktree's index with a component of this name, in any letter
        case."""
        paths = (f":(icase,glob)**/{name}/**", f":(icase,glob)**/{name}")
        listed = await self._git.process.read(worktree, "ls-files", "-z", "--", *paths)
        return tuple(os.fsdecode(path) for path in listed.split(b"\0") if path)

    async def tracked_among(self, worktree: Path, paths: Sequence[str]) -> frozenset[str]:
        """Return those of ``paths``, relative to the worktree's top, that its index has."""
        git = self._git
        if not paths:
            return frozenset()
        listed = await git.process.read(worktree, "--literal-pathspecs", "ls-files", "-z", "--", *paths)
        return frozenset(os.fsdecode(listed).split("\0")) & frozenset(paths)

    async def ignored_files(self, worktree: Path) -> tuple[str, ...]:
        """Return untracked paths that git ignores; a completely ignored directory is one path,
        which ends in ``/``."""
        arguments = ("ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory")
        listed = await self._git.process.read(worktree, *arguments)
        return tuple(os.fsdecode(path) for path in listed.split(b"\0") if path)

    async def ignored_among(self, worktree: Path, paths: Sequence[str]) -> frozenset[str]:
        """Return those of ``paths``, which need not exist, that git would ignore and that are not
        tracked, nor below a tracked path. A path that ends in ``/`` is a directory, any other a
        file or a link. None may lead through a link. Raise WorktreeChangedError."""
        git = self._git
        git_dir = await git.verified(worktree, None)
        there = at(git_dir, worktree)
        stdin = b"".join(os.fsencode(path) + b"\0" for path in paths)
        # With the index, git would stop at the first path inside a submodule.
        asked = ("check-ignore", "--no-index", "-z", "--stdin")
        done = await git.process.run(worktree, *there, *asked, stdin=stdin)
        if done.returncode not in (0, 1):
            raise failed(done, asked)
        ignored = os.fsdecode(done.stdout).split("\0")[:-1]
        if not ignored:
            return frozenset()
        listed = await git.process.read(worktree, *there, "ls-files", "-z")

        def untracked() -> frozenset[str]:
            tracked = set(os.fsdecode(listed).split("\0"))
            return frozenset(path for path in ignored if tracked.isdisjoint(_and_above(path)))

        return await git.compute(untracked)
