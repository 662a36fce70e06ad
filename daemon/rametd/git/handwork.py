"""A person's changes in a spare, which Ramet never destroys.

When a spare is ready, a record of its files beside those of its commit is stored in its git directory: the setup may have created some. Before a spare is
written to or removed, all its files are compared with the record; a changed spare is given up (`let_go`). Ignored files do not count.
"""

import hashlib
import os
from dataclasses import replace
from pathlib import Path
from typing import Final

from rametd.domain.errors import GitFailedError, WorktreeChangedError
from rametd.git.context import GitContext
from rametd.git.obstacles import named
from rametd.git.registrations import left_at, locate, registered_at
from rametd.git.repository import RepositoryInfo, branch_tip
from rametd.git.risk import Risk, work_at_risk
from rametd.git.snapshot import write_tree

_NOTE: Final = "ramet-spare"


async def note(git: GitContext, repo: RepositoryInfo, path: Path, commit: str) -> None:
    """Record the files of a ready spare at ``commit``, including those of its setup; later changes are a person's."""
    git_dir, why = await git.compute(locate, repo.common_dir, path)
    if git_dir is None:
        raise WorktreeChangedError(why or f"the spare {path} is gone", worktree=str(path))
    risk = await work_at_risk(git, repo, path, "", commit)
    digest = await _digest(git, path, git_dir, risk)

    def write() -> None:
        scratch = git_dir / f"{_NOTE}.new"
        scratch.write_text(digest)
        scratch.replace(git_dir / _NOTE)

    await git.compute(write)


def forget(git_dir: Path) -> None:
    """Delete the record before Ramet writes to the spare. Blocks."""
    (git_dir / _NOTE).unlink(missing_ok=True)


async def find(
    git: GitContext, repo: RepositoryInfo, path: Path, *commits: str, branch: str = "", unfinished: bool = False
) -> str | None:
    """Describe a person's changes in a spare at one of ``commits`` since `note`; None without any. Reads all files.

    ``branch``: the spare may have been claimed for it. An ``unfinished`` spare without a record was being written by Ramet: changed
    files then do not count as a person's, only commits do.
    """
    git_dir = await git.compute(_git_dir, repo, path)
    if git_dir is None:
        return None
    if git_dir == repo.common_dir:
        return "git's entry of it is gone"
    noted = await git.compute(_read, git_dir / _NOTE)
    unfinished = unfinished and not noted
    if unfinished and not await git.compute((git_dir / "index").is_file):
        return None  # git writes it last
    head = await git.compute(_read, git_dir / "HEAD")
    if branch and head == f"ref: refs/heads/{branch}":
        tip = await git.compute(branch_tip, repo, branch)
        head = tip or ""
    if head.startswith("ref: "):
        return f"it has {head.removeprefix('ref: refs/heads/')} checked out"
    if head not in commits and not unfinished:
        return f"it is at {head[:12]}, not at {commits[0][:12]}"
    if head in commits and unfinished:
        return None
    try:
        risk = await work_at_risk(git, repo, path, branch, commits[0])
        if unfinished:
            own = [sha[:12] for sha, _ in risk.unique_commits]
            return f"it has commits of its own: {named(own)}" if own else None
        if not risk or noted == await _digest(git, path, git_dir, risk):
            return None
    except GitFailedError as error:
        return f"it cannot be looked at: {error.message}"
    return f"it has {named([*risk.uncommitted, *risk.untracked, *risk.inside, *risk.under_way, *risk.unread])}"


async def left_before(
    git: GitContext, repo: RepositoryInfo, path: Path, branch: str, commit: str, until: float
) -> tuple[str, ...]:
    """Return the files of a claimed spare that were changed after `note` and before ``until``, seconds since the epoch."""
    git_dir = await git.compute(_git_dir, repo, path)
    if git_dir is None:
        return ()
    risk = await work_at_risk(git, repo, path, branch, commit)

    def look() -> tuple[str, ...]:
        try:
            since = (git_dir / _NOTE).stat().st_mtime
        except FileNotFoundError:
            return ()
        return tuple(name for name in (*risk.uncommitted, *risk.untracked) if since < _changed(path / name) < until)

    return await git.compute(look)


def _changed(file: Path) -> float:
    """Time of the last change (ctime); of a deleted file, that of its directory."""
    while not os.path.lexists(file):
        file = file.parent
    return file.lstat().st_ctime


async def let_go(git: GitContext, repo: RepositoryInfo, path: Path) -> None:
    """Unlock the worktree, so that it is an ordinary one that Ramet does not remove."""

    def unlock() -> None:
        for entry in registered_at(repo.common_dir, path):
            (entry.admin_dir / "locked").unlink(missing_ok=True)
            forget(entry.admin_dir)

    async with git.locks.hold(repo.common_dir):
        await git.compute(unlock)


async def _digest(git: GitContext, path: Path, git_dir: Path, risk: Risk) -> str:
    """Digest of work at risk, including the content of files."""
    if not risk:
        return "nothing"
    tree = "" if risk.gone else (await write_tree(git, path, git_dir)).tree
    text = f"{tree}\n{replace(risk, starts=())!r}"
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def _git_dir(repo: RepositoryInfo, path: Path) -> Path | None:
    """Git directory of the spare, even if its worktree is gone: its entry has staged and committed work."""
    git_dir, _ = locate(repo.common_dir, path)
    left = left_at(repo.common_dir, path) if git_dir is None else None
    return left.admin_dir if left is not None else git_dir


def _read(file: Path) -> str:
    """Its text without the line end, "" where there is none."""
    try:
        return file.read_text().strip()
    except (FileNotFoundError, NotADirectoryError):
        return ""
