"""Unmaking worktrees: always to the end, whatever state they are in, and never anything that is not the one named."""

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
    """What came of a removal. ``kept`` has a line for each thing left in place, and why; empty when nothing is left."""

    branch_commit: str | None
    """Where the branch was when it was deleted; None when it was not."""
    kept: tuple[str, ...]


async def remove_worktree(
    git: GitContext,
    repo: RepositoryInfo,
    path: Path,
    branch: str,
    *,
    delete_branch: bool,
) -> Removal:
    """See `Git.worktrees.remove`."""
    await git.make_durable(repo.common_dir, path.parent)  # what was kept, in the repository and beside the worktree
    async with git.locks.hold(repo.common_dir) as lock:
        kept = await detach(git, repo, path, lock)
        tip = await git.compute(branch_tip, repo, branch) if delete_branch else None
        why = await branches.delete_branch(git, repo, branch, tip, lock) if tip is not None else None
        if delete_branch and (lost := await git.compute(branches.lost_tip, repo, branch)) is not None:
            why = f"branch {branch}: it stays, for git has its commit {lost[:12]} no more"
    await sweep(git, repo, path)
    lines = tuple(line for line in (kept, why) if line is not None)
    return Removal(tip if why is None else None, lines)


async def undo_create(
    git: GitContext, repo: RepositoryInfo, path: Path, branch: str, created_branch_at: str | None
) -> Removal:
    """See `Git.worktrees.undo_create`."""
    async with git.locks.hold(repo.common_dir) as lock:
        kept = await detach(git, repo, path, lock, unfinished=True)
        why = deleted = None
        if created_branch_at is not None and await git.compute(branches.made_for, repo, branch, path):
            why = await branches.delete_branch(git, repo, branch, created_branch_at, lock)
            deleted = created_branch_at if why is None else None
    await sweep(git, repo, path)
    return Removal(deleted, tuple(line for line in (kept, why) if line is not None))


async def detach(
    git: GitContext, repo: RepositoryInfo, path: Path, lock: int, *, unfinished: bool = False
) -> str | None:
    """Under the repository's lock: move the directory aside and drop its entry, and those of worktrees inside it. Returns why the directory is kept,
    if it is.

    ``unfinished`` restricts it to entries that we were making: an adopted worktree of the user's is left alone.
    """
    del lock  # held by the caller: asked for so that nobody forgets

    def work() -> str | None:
        entries = registered_at(repo.common_dir, path)
        if unfinished and not all(is_unfinished(entry) for entry in entries):
            return f"{path}: it is a worktree that was there before"
        if unfinished and not entries and _holds_files(path):
            # Git makes the entry first: a directory without one, such as a worktree that was moved back when its entry was gone, is not what we made.
            return foreign(repo.common_dir, path, entries) or f"{path}: it was there before"
        refuse_main(repo, path)
        why = foreign(repo.common_dir, path, entries)
        try:
            if why is None and path.exists():
                path.rename(_free(path.with_name(f".{path.name}.removing")))
            if (elsewhere := moved_to(repo.common_dir, path)) is not None:
                (elsewhere.admin_dir / "locked").unlink()  # it is the person's now, and nothing of ours removes it
            # Of a directory that an interrupted run has moved, those inside are still to go.
            inside = entries_inside(repo.common_dir, path) if why is None else ()
            for entry in (*entries, *inside):
                entry.admin_dir.rename(_free(repo.common_dir / DIRECTORY / f"removing-{path.name}"))
        except OSError as error:
            raise GitFailedError(
                f"{error.filename} cannot be moved: {error.strerror}", hint="look at who owns it, then try again"
            ) from error
        with contextlib.suppress(OSError):  # not empty, or never there
            (repo.common_dir / "worktrees").rmdir()
        return why

    return await git.compute(work)


def is_unfinished(entry: Registration) -> bool:
    """Whether the entry is one that we were making (or git was, for us) rather than a worktree of the user's."""
    return entry.path is None or entry.locked in UNFINISHED


def _holds_files(path: Path) -> bool:
    return path.is_dir() and any(path.iterdir())


def refuse_main(repo: RepositoryInfo, path: Path) -> None:
    for precious in (repo.root, repo.common_dir):
        if precious.is_relative_to(path.resolve()):
            raise WorktreeChangedError(
                f"{path} holds the repository itself and is never removed",
                hint="only linked worktrees are",
                worktree=str(path),
            )


def _free(wanted: Path) -> Path:
    """``wanted``, or with a number after it: what an interrupted removal left may still bear the name."""
    return next(path for n in count() if not (path := wanted.with_name(f"{wanted.name}-{n}")).exists())


async def sweep(git: GitContext, repo: RepositoryInfo, path: Path) -> None:
    """Delete what was moved aside, now and by earlier removals of the same path that were interrupted."""
    for folder in await git.compute(_aside, repo, path):
        await git.delete(delete_tree, folder)


def _aside(repo: RepositoryInfo, path: Path) -> list[Path]:
    name = _escape(path.name)
    return [*path.parent.glob(f".{name}.removing-*"), *(repo.common_dir / DIRECTORY).glob(f"removing-{name}-*")]


def delete_tree(folder: Path) -> None:
    """Delete a tree that may hold read-only folders, that a process may still write to (a git of a killed daemon), and that may be deeper than Python
    recurses or a path is long. Raises GitFailedError."""
    for _ in range(4):
        with contextlib.suppress(RecursionError):
            shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        _flatten(folder)
    try:
        shutil.rmtree(folder)
    except OSError as error:
        raise GitFailedError(
            f"{error.filename} cannot be deleted: {error.strerror}", hint="delete it by hand"
        ) from error


def _flatten(folder: Path) -> None:
    """Open all directories in it to us, and have them lie directly in it. What cannot be moved stays, for the deletion to say why."""
    waiting = [folder]
    while waiting:
        directory = waiting.pop()
        with contextlib.suppress(FileNotFoundError):
            directory.chmod(0o700)
            for inner in [item for item in directory.iterdir() if item.is_dir() and not item.is_symlink()]:
                with contextlib.suppress(OSError):
                    inner.chmod(0o700)  # to be moved, it has to be written to itself
                    near = inner if directory == folder else folder / f".deep-{secrets.token_hex(8)}"
                    waiting.append(inner.rename(near))


def _escape(name: str) -> str:
    return "".join(f"[{char}]" if char in "*?[" else char for char in name)
