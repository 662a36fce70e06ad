"""Making and unmaking linked worktrees.

Everything can be interrupted anywhere and done again. Making: branch → entry and `.git` file (git, without a checkout) → files.
Unmaking: the directory is renamed aside (atomic: from then on the path is free, and nothing half deleted can be taken for work)
→ entry → branch → files. Steps that touch shared state hold the repository's lock; those that only move bytes do not.

Our worktrees are locked (`git worktree lock`): a `git worktree prune` while their disk is away, or a `git worktree remove` under
a running agent, is refused by git with our reason. Removal here does not ask git, so that the lock is not in our own way.
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
from rametd.git.inventory import last_checked_out
from rametd.git.matrix import head_commit
from rametd.git.process import Completed, failed
from rametd.git.registrations import (
    REASON,
    WORKTREE_CONFIG,
    Registration,
    diverted,
    git_dir_of,
    registered_at,
    registrations,
    verify_worktree,
)
from rametd.git.removal import Removal, delete_tree, remove_worktree, undo_create
from rametd.git.repository import RepositoryInfo, branch_tip, commit_exists, head_of, open_repository
from rametd.git.risk import Risk, unstored, work_at_risk
from rametd.git.submodules import populate_submodules
from rametd.git.tracking import Trackers


async def ignored_among(git: GitContext, worktree: Path, paths: Sequence[str]) -> frozenset[str]:
    """See `Git.worktrees.ignored_among`."""
    git_dir = await git.verified(worktree, None)
    there = (f"--git-dir={git_dir}", f"--work-tree={worktree}")
    stdin = b"".join(os.fsencode(path) + b"\0" for path in paths)
    # With the index it would end at the first path that lies in a submodule.
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


async def tracked_among(git: GitContext, worktree: Path, paths: Sequence[str]) -> frozenset[str]:
    """See `Git.worktrees.tracked_among`."""
    if not paths:
        return frozenset()
    listed = await git.process.read(worktree, "--literal-pathspecs", "ls-files", "-z", "--", *paths)
    return frozenset(os.fsdecode(listed).split("\0")) & frozenset(paths)


def _and_above(path: str) -> list[str]:
    pure = PurePosixPath(path)
    return [str(pure), *map(str, pure.parents)]


@dataclass(frozen=True, slots=True)
class Worktree:
    """A worktree as git knows it. ``branch`` None: detached; ``commit`` None: unborn; ``exists``: its directory is there."""

    path: Path
    branch: str | None
    commit: str | None
    locked: str | None
    exists: bool
    is_main: bool


def list_worktrees(repo: RepositoryInfo) -> tuple[Worktree, ...]:
    """All worktrees, the main one first (none in a bare repository)."""
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
            exists=entry.path.is_dir(),
            is_main=False,
        )
        for entry in registrations(repo.common_dir)
        if entry.path is not None
    ]
    return main + tuple(linked)


async def create_worktree(
    git: GitContext, repo: RepositoryInfo, path: Path, branch: str, commit: str, *, new_branch: bool
) -> tuple[str, ...]:
    """See `Git.worktrees.create`."""
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
            # Shielded: a second cancellation must not leave half of it.
            await asyncio.shield(removal.undo_create(git, repo, path, branch, commit if new_branch else None))
    return warnings


def is_complete(path: Path, branch: str) -> bool:
    """An earlier run got as far as the files: git writes the index last."""
    try:
        return (verify_worktree(path, branch) / "index").is_file()
    except WorktreeChangedError:
        return False


def _leftover(repo: RepositoryInfo, path: Path) -> bool:
    """An earlier run was cut short at ``path``: registered by us, and without an index, so that nobody can have worked in it."""
    entries = registered_at(repo.common_dir, path)
    return bool(entries) and all(
        removal.is_unfinished(entry) and not (entry.admin_dir / "index").exists() for entry in entries
    )


def _require_possible(repo: RepositoryInfo, path: Path, branch: str, commit: str, *, new_branch: bool) -> None:
    """All that can be refused is refused here, before anything is made."""
    if registered := registered_at(repo.common_dir, path):
        hint = f"{make_room(repo, path, locked=any(entry.locked is not None for entry in registered))}; then try again"
        raise PathTakenError(f"a worktree is registered at {path}", hint=hint, path=str(path))
    if path.is_symlink() or (path.exists() and not (path.is_dir() and not any(path.iterdir()))):
        raise PathTakenError(f"{path} exists already", hint="move it away, then try again", path=str(path))
    tip = branch_tip(repo, branch)
    if not new_branch and tip is None:
        raise RefNotFoundError(f"there is no branch {branch}", hint="leave --existing out to make it")
    if new_branch and not commit_exists(repo, commit):
        raise RefNotFoundError(f"{commit} is not a commit of {repo.name}", hint="name a branch, a tag or a commit")
    resumed = new_branch and tip == commit and branches.made_for(repo, branch, path)
    branches.require_free(repo, branch, new=new_branch and not resumed)


def make_room(repo: RepositoryInfo, path: Path, *, locked: bool) -> str:
    """The command that frees a place where somebody else's worktree is registered."""
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
    *,
    reason: str | None = REASON,
) -> None:
    """Under the repository's lock: entry and `.git` file, without files; ``branch`` None for a detached HEAD at ``target``.

    ``reason`` is why it is locked; None makes it one of the person's own, which is not.
    """
    done = await git.process.run(
        repo.standpoint,
        *("worktree", "add", "--no-checkout", *(("--lock", "--reason", reason) if reason is not None else ())),
        *(() if branch else ("--detach",)),
        *("--", str(path), target),
        lock=lock,
    )
    try:
        await git.compute(_settle_top, path)
        await git.verified(path, branch)
    except WorktreeChangedError:
        raise _refused(done, target) from None


def _settle_top(path: Path) -> None:
    """Make ``path`` the top of a new worktree where the repository's configuration names another one for all (see `diverted`)."""
    git_dir = git_dir_of(path)
    if git_dir is not None and diverted(git_dir, path) is not None:
        pygit2.Config(str(git_dir / WORKTREE_CONFIG))["core.worktree"] = str(path)


def _refused(done: Completed, branch: str) -> BranchTakenError | GitFailedError:
    # A branch in the middle of a rebase or a bisect elsewhere: only git knows all the files that say so.
    if "already checked out" in done.words or "already used by worktree" in done.words:
        return BranchTakenError(
            done.words, hint="finish what runs there, or choose another name with --branch", branch=branch
        )
    return failed(done, ("worktree add",))


async def fill(git: GitContext, path: Path, branch: str | None, commit: str = "HEAD") -> None:
    """Check the files out: what `git worktree add` does itself, but outside the lock, so that ten trees fill side by side.

    With another ``commit``, for a tree without a branch: only what differs is written.
    """
    git_dir = await git.verified(path, branch)
    # Both ends are named: should the .git file vanish now, git would climb to a repository further up and reset that.
    there = (f"--git-dir={git_dir}", f"--work-tree={path}")
    done = await git.process.run(path, *there, "reset", "--hard", "--quiet", "--no-recurse-submodules", commit)
    if done.returncode == 0:
        return
    state = await git.process.run(path, *there, "status", "--porcelain", "--untracked-files=no", "--ignore-submodules")
    if state.returncode != 0 or state.stdout or commit != "HEAD":
        raise failed(done, ("checkout",))


class Worktrees:
    """Working trees that belong to a session or a person. Every method may raise what those of `Git` raise."""

    def __init__(self, git: GitContext, trackers: Trackers) -> None:
        self._git = git
        self._trackers = trackers

    async def list(self, repo: RepositoryInfo) -> tuple[Worktree, ...]:
        """All worktrees, the main one first."""
        return await self._git.compute(list_worktrees, repo)

    async def create(
        self, repo: RepositoryInfo, path: Path, branch: str, commit: str, *, new_branch: bool
    ) -> tuple[str, ...]:
        """Make a linked, locked worktree at ``path`` with ``branch`` checked out, made at ``commit`` when ``new_branch``.

        All or nothing, and safe to repeat after a kill at any point. Sparse checkout follows the worktree that ``repo`` was
        discovered from, as do populated submodules; the lines returned name submodules that could not be filled. Raises
        BadNameError, BranchTakenError (``data["worktree"]``), PathTakenError, RefNotFoundError, before anything is made.
        """
        return await create_worktree(self._git, repo, path, branch, commit, new_branch=new_branch)

    async def undo_create(
        self, repo: RepositoryInfo, path: Path, branch: str, created_branch_at: str | None
    ) -> Removal:
        """Undo a creation that did not finish, whatever it left. Give ``created_branch_at`` when it was to make the branch.

        Only what `create_worktree` made for ``path`` goes: not a worktree or branch that was there before.
        """
        await self._trackers.unwatch(path)
        return await undo_create(self._git, repo, path, branch, created_branch_at)

    async def verify(self, path: Path, branch: str | None) -> None:
        """Raise WorktreeChangedError unless ``path`` is a worktree, registered there, with ``branch`` (None: any) checked out."""
        await self._git.verified(path, branch)

    async def head_commit(self, worktree: Path) -> str | None:
        """The commit that a worktree has checked out, None before the first one."""
        return await self._git.compute(head_commit, worktree)

    async def last_checked_out(self, entry: Registration) -> str | None:
        """The commit that a worktree had checked out last, also when its branch is gone; None when that is not written down."""
        return await self._git.compute(last_checked_out, entry)

    async def work_at_risk(self, repo: RepositoryInfo, worktree: Path, branch: str, base_commit: str | None) -> Risk:
        """What removing the worktree and its branch would lose. Works when the directory is gone, or no
        longer whole; what lies there but is not the worktree is not removed, so that it is not at risk.

        A commit is unique when no other local branch, remote branch or tag reaches it, and ``base_commit`` does not either.
        """
        return await work_at_risk(self._git, repo, worktree, branch, base_commit)

    async def unstored(self, repo: RepositoryInfo, worktree: Path) -> tuple[str, ...]:
        """Git's words for each file that it cannot read or store now, by trying; none for what lies there and is not the worktree."""
        return await unstored(self._git, repo, worktree)

    async def remove(self, repo: RepositoryInfo, path: Path, branch: str, *, delete_branch: bool) -> Removal:
        """Remove the worktree recorded at ``path``, with all that is in it, and the branch: where there is work, shelve it instead.

        Completes whatever the state: directory gone, locked, unregistered, moved. What lies at ``path`` but is not that worktree
        is left, and named in ``kept``. Worktrees inside it go with it. Raises WorktreeChangedError when ``path`` holds the repository itself.
        """
        return await remove_worktree(self._git, repo, path, branch, delete_branch=delete_branch)

    async def delete_tree(self, folder: Path) -> None:
        """Delete a directory with all that is in it, also what may not be written to; nothing is done where there is none."""
        await self._git.delete(delete_tree, folder)

    async def tracked_below(self, worktree: Path, name: str) -> tuple[str, ...]:
        """Paths in the worktree's index that have a part of this name, in any letter case."""
        paths = (f":(icase,glob)**/{name}/**", f":(icase,glob)**/{name}")
        listed = await self._git.process.read(worktree, "ls-files", "-z", "--", *paths)
        return tuple(os.fsdecode(path) for path in listed.split(b"\0") if path)

    async def tracked_among(self, worktree: Path, paths: Sequence[str]) -> frozenset[str]:
        """Those of ``paths``, relative to the worktree's top, that its index has."""
        return await tracked_among(self._git, worktree, paths)

    async def ignored_files(self, worktree: Path) -> tuple[str, ...]:
        """Untracked paths that git ignores; a directory that is ignored as a whole is one of them, and ends in ``/``."""
        arguments = ("ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory")
        listed = await self._git.process.read(worktree, *arguments)
        return tuple(os.fsdecode(path) for path in listed.split(b"\0") if path)

    async def ignored_among(self, worktree: Path, paths: Sequence[str]) -> frozenset[str]:
        """Of paths that need not be there, those that git would ignore and neither tracks itself nor as what is above them. One that ends in ``/`` is
        meant as a directory, any other as a file or a link. None may lie beyond a link. Raises WorktreeChangedError."""
        return await ignored_among(self._git, worktree, paths)
