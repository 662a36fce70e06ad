"""Making and unmaking linked worktrees.

Everything can be interrupted anywhere and done again. Making: branch → entry and `.git` file (git, without a checkout) → files.
Unmaking: the directory is renamed aside (atomic: from then on the path is free, and nothing half deleted can be taken for work)
→ entry → branch → files. Steps that touch shared state hold the repository's lock; those that only move bytes do not.

Our worktrees are locked (`git worktree lock`): a `git worktree prune` while their disk is away, or a `git worktree remove` under
a running agent, is refused by git with our reason. Removal here does not ask git, so that the lock is not in our own way.
"""

import asyncio
import shlex
from dataclasses import dataclass
from pathlib import Path

from rametd.domain.errors import (
    BranchTakenError,
    GitFailedError,
    PathTakenError,
    RefNotFoundError,
    WorktreeChangedError,
)
from rametd.git import branches, names, removal
from rametd.git.context import GitContext
from rametd.git.process import Completed, failed
from rametd.git.registrations import REASON, registered_at, registrations, verify_worktree
from rametd.git.repository import RepositoryInfo, branch_tip, commit_exists, head_of, open_repository
from rametd.git.submodules import populate_submodules


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
    """See `Git.create_worktree`."""
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
        await git.verified(path, branch)
    except WorktreeChangedError:
        raise _refused(done, target) from None


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
