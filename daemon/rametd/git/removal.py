"""Remove worktrees completely, in any state, and nothing else."""

import contextlib
import secrets
import shutil
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from rametd.domain.errors import GitFailedError, WorktreeChangedError
from rametd.git import branches
from rametd.git.context import GitContext
from rametd.git.locks import DIRECTORY
from rametd.git.registrations import UNFINISHED, Registration, entries_inside, foreign, moved_to, registered_at
from rametd.git.repository import RepositoryInfo, branch_tip


@dataclass(frozen=True, slots=True)
class Removal:
    """Result of a removal. ``left`` has a line for each part that stays, with the reason."""

    branch_commit: str | None
    """Commit of the deleted branch; None if it was not deleted."""
    left: tuple[str, ...]


async def remove_worktree(
    git: GitContext,
    repo: RepositoryInfo,
    path: Path,
    branch: str,
    *,
    delete_branch: bool,
) -> Removal:
    """Remove the worktree that is recorded at ``path``, with its content, and the branch. For a
    worktree with work, use the shelf.

    This completes in any state: directory gone, locked, unregistered, moved. Another directory at
    ``path`` stays; ``left`` names it. Worktrees inside are removed too. Raise WorktreeChangedError
    if ``path`` contains the repository itself.
    """
    await git.make_durable(repo.common_dir, path.parent)  # snapshots, in the repository and beside the worktree
    async with git.locks.hold(repo.common_dir) as lock:
        left = await detach(git, repo, path, lock)
        tip = await git.compute(branch_tip, repo, branch) if delete_branch else None
        why = await branches.delete_branch(git, repo, branch, tip, lock) if tip is not None else None
        if delete_branch and (lost := await git.compute(branches.lost_tip, repo, branch)) is not None:
            why = f"branch {branch} stays: git no longer has its commit {lost[:12]}"
    await sweep(git, repo, path)
    lines = tuple(line for line in (left, why) if line is not None)
    return Removal(tip if why is None else None, lines)


async def undo_create(
    git: GitContext, repo: RepositoryInfo, path: Path, branch: str, created_branch_at: str | None
) -> Removal:
    """Undo an unfinished creation in any state. Pass ``created_branch_at`` if the creation had to
    create the branch.

    Remove only what `Worktrees.create` has created for ``path``, not a worktree or branch that
    existed before.
    """
    async with git.locks.hold(repo.common_dir) as lock:
        left = await detach(git, repo, path, lock, unfinished=True)
        why = deleted = None
        if created_branch_at is not None and await git.compute(branches.made_for, repo, branch, path):
            why = await branches.delete_branch(git, repo, branch, created_branch_at, lock)
            deleted = created_branch_at if why is None else None
    await sweep(git, repo, path)
    return Removal(deleted, tuple(line for line in (left, why) if line is not None))


async def detach(
    git: GitContext, repo: RepositoryInfo, path: Path, lock: int, *, unfinished: bool = False
) -> str | None:
    """Under the repository's lock, move the directory away and drop its entry, and those of
    worktrees inside it.

    Return why the directory stays, None if it was moved. ``unfinished``: drop only entries that
    Ramet was creating; an adopted worktree stays.
    """
    del lock  # the caller holds it, which the parameter ensures

    def work() -> str | None:
        entries = registered_at(repo.common_dir, path)
        if unfinished and not all(is_unfinished(entry) for entry in entries):
            return f"{path}: the worktree existed before"
        if unfinished and not entries and _holds_files(path):
            # Git creates the entry first, so Ramet did not create a directory without one.
            return foreign(repo.common_dir, path, entries) or f"{path}: it existed before"
        refuse_main(repo, path)
        why = foreign(repo.common_dir, path, entries)
        try:
            if why is None and path.exists():
                path.rename(free_path(path.with_name(f".{path.name}.removing")))
            if (elsewhere := moved_to(repo.common_dir, path)) is not None:
                (elsewhere.admin_dir / "locked").unlink()  # it belongs to the person now: Ramet does not remove it
            # An interrupted run may have moved the directory, but not the entries of worktrees
            # inside it.
            inside = entries_inside(repo.common_dir, path) if why is None else ()
            for entry in (*entries, *inside):
                entry.admin_dir.rename(free_path(repo.common_dir / DIRECTORY / f"removing-{path.name}"))
        except OSError as error:
            raise GitFailedError(
                f"{error.filename} cannot be moved: {error.strerror}",
                hint="check its owner and permissions, then try again",
            ) from error
        with contextlib.suppress(OSError):  # not empty, or never there
            (repo.common_dir / "worktrees").rmdir()
        return why

    return await git.compute(work)


def is_unfinished(entry: Registration) -> bool:
    """Whether Ramet, not a person, was creating the entry."""
    return entry.path is None or entry.locked in UNFINISHED


def _holds_files(path: Path) -> bool:
    return path.is_dir() and any(path.iterdir())


def refuse_main(repo: RepositoryInfo, path: Path) -> None:
    for precious in (repo.root, repo.common_dir):
        if precious.is_relative_to(path.resolve()):
            raise WorktreeChangedError(
                f"{path} has the repository itself and is never removed",
                hint="only linked worktrees are",
                worktree=str(path),
            )


def free_path(wanted: Path) -> Path:
    """Append the first free number to ``wanted``: interrupted removals may have left others."""
    return next(path for n in count() if not (path := wanted.with_name(f"{wanted.name}-{n}")).exists())


async def sweep(git: GitContext, repo: RepositoryInfo, path: Path) -> None:
    """Delete directories that this and earlier, interrupted removals of the path moved away."""
    for folder in await git.compute(_renamed, repo, path):
        await git.delete(delete_tree, folder)


def _renamed(repo: RepositoryInfo, path: Path) -> list[Path]:
    name = _escape(path.name)
    return [*path.parent.glob(f".{name}.removing-*"), *(repo.common_dir / DIRECTORY).glob(f"removing-{name}-*")]


def delete_tree(folder: Path) -> None:
    """Delete a directory tree. Raises GitFailedError.

    The tree may be a symbolic link, have read-only directories, and be too deep for recursion or
    for one path; a git process of a killed daemon may still write to it.
    """
    if folder.is_symlink():
        folder.unlink()  # its target is not ours
        return
    for _ in range(4):
        with contextlib.suppress(RecursionError):
            shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        _flatten(folder)
    try:
        shutil.rmtree(folder)
    except OSError as error:
        # The error has the last part of the path only. What can be deleted is gone.
        left = next((path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir()), folder)
        raise GitFailedError(f"{left} cannot be deleted: {error.strerror}", hint="delete it by hand") from error


def _flatten(folder: Path) -> None:
    """Make all directories in it writable, and move them to its top. The later deletion reports
    those that cannot be moved."""
    waiting = [folder]
    while waiting:
        directory = waiting.pop()
        with contextlib.suppress(FileNotFoundError):
            directory.chmod(0o700)
            for inner in [item for item in directory.iterdir() if item.is_dir() and not item.is_symlink()]:
                with contextlib.suppress(OSError):
                    inner.chmod(0o700)  # a directory must be writable to be moved
                    near = inner if directory == folder else folder / f".deep-{secrets.token_hex(8)}"
                    waiting.append(inner.rename(near))


def _escape(name: str) -> str:
    return "".join(f"[{char}]" if char in "*?[" else char for char in name)
