"""Spare worktrees: detached, locked, filled beforehand, and claimed in place.

A spare is a linked worktree that Ramet creates, with a detached HEAD, so that it holds no branch. A claim creates the branch and points HEAD to it:
two small writes under the repository's lock; no file is checked out or moved. Slow work (filling a worktree, moving it to another commit) runs
outside the lock, at low priority unless a session waits for it.

Before a spare is written to or removed, all its files are checked for a person's changes (`handwork`). A claim writes no file, and has no time for
that: it checks only HEAD.
"""

import asyncio
import hashlib
import re
from pathlib import Path
from typing import Final

from rametd.domain.errors import GitFailedError, PathTakenError, RefNotFoundError, WorktreeChangedError
from rametd.git import branches, handwork, names, removal, worktrees
from rametd.git.context import GitContext
from rametd.git.registrations import REASON, registered_at, verify_worktree
from rametd.git.removal import Removal
from rametd.git.repository import RepositoryInfo, branch_tip, commit_exists, open_repository
from rametd.git.submodules import populate_submodules
from rametd.git.tracking import Trackers

_SPARSE: Final = re.compile(rb"^\s*sparse\w*\s*=.*$", re.IGNORECASE | re.MULTILINE)


async def require_untouched(git: GitContext, repo: RepositoryInfo, path: Path, commit: str) -> None:
    """Raise WorktreeChangedError unless it is a valid spare at ``commit`` without a person's changes. The caller writes to it from then on."""
    git_dir = await git.compute(verify_spare, path, commit)
    if (found := await handwork.find(git, repo, path, commit)) is not None:
        raise WorktreeChangedError(f"the spare {path} has a person's changes: {found}", worktree=str(path))
    await git.compute(handwork.forget, git_dir)


def _take_up(repo: RepositoryInfo, git_dir: Path, path: Path, branch: str, commit: str | None) -> None:
    """Create the branch if ``commit`` is given, and point HEAD to it. Uses libgit2, since a git process takes as long as all the rest."""
    if commit is not None:
        branches.create_branch_here(repo, path, branch, commit)
    open_repository(git_dir).set_head(f"refs/heads/{branch}")


def inheritance(repo: RepositoryInfo) -> str:
    """Digest of settings that a new worktree inherits from the one that ``repo`` was discovered from: sparse checkout, populated
    submodules. A spare fits only if its digest is the same. Blocks."""
    settings = b"\n".join(
        b"\n".join(_SPARSE.findall(_bytes(file)))
        for file in (repo.common_dir / "config", repo.git_dir / "config.worktree")
    )
    digest = hashlib.sha256(settings)
    if settings.strip():
        digest.update(_bytes(repo.git_dir / "info" / "sparse-checkout"))
    modules = repo.git_dir / "modules"
    if modules.is_dir():
        populated = sorted(str(head.parent.relative_to(modules)) for head in modules.rglob("HEAD"))
        digest.update("\0".join(populated).encode(errors="surrogateescape"))
    return digest.hexdigest()[:16]


def _bytes(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return b""


def _require_possible(repo: RepositoryInfo, path: Path, commit: str) -> None:
    if registered_at(repo.common_dir, path) or path.is_symlink() or path.exists():
        raise PathTakenError(f"{path} exists already", hint="move it away", path=str(path))
    if not commit_exists(repo, commit):
        raise RefNotFoundError(f"{commit} is not a commit of {repo.name}", hint="fetch it")


def verify_spare(path: Path, commit: str) -> Path:
    """Git directory of a valid spare: created by Ramet, detached at ``commit``, complete, and without a running git."""
    git_dir = verify_worktree(path, None)
    try:
        head = (git_dir / "HEAD").read_text().strip()
        locked = (git_dir / "locked").read_text().strip()
    except FileNotFoundError as error:
        raise WorktreeChangedError(f"{path} is not a spare: {error.filename} is missing", worktree=str(path)) from error
    if re.fullmatch(r"[0-9a-f]{40}", head) is None or locked != REASON:
        raise WorktreeChangedError(f"{path} is no longer a spare: it has {head} checked out", worktree=str(path))
    if head != commit:
        raise WorktreeChangedError(f"the spare {path} is at {head[:12]}, not at {commit[:12]}", worktree=str(path))
    if not (git_dir / "index").is_file() or (git_dir / "index.lock").exists():
        raise WorktreeChangedError(f"the spare {path} is incomplete", worktree=str(path))
    return git_dir


class Spares:
    """Prepared worktrees without a session. Every method may raise what those of `Git` raise."""

    def __init__(self, git: GitContext, trackers: Trackers) -> None:
        self._git = git
        self._trackers = trackers
        quiet = git.in_background()
        self.note = quiet.bind(handwork.note)
        self.work = git.bind(handwork.find)
        self.left = quiet.bind(handwork.left_before)
        self.require_untouched = git.bind(require_untouched)
        self.verify = git.threaded(verify_spare)
        self.inheritance = git.threaded(inheritance)

    async def make(self, repo: RepositoryInfo, path: Path, commit: str) -> tuple[str, ...]:
        """Create a locked worktree at ``path`` with ``commit`` detached, filled at low priority; all or nothing."""
        git = self._git
        done = False
        try:
            async with git.locks.hold(repo.common_dir) as lock:
                await git.compute(_require_possible, repo, path, commit)
                await worktrees.register(git, repo, path, None, commit, lock)
            quiet = git.in_background()
            async with git.checkouts:
                await worktrees.fill(quiet, path, None)
                warnings = await populate_submodules(quiet, repo.worktree_root, path)
            done = True
        finally:
            if not done:
                await asyncio.shield(removal.undo_create(git, repo, path, "", None))
        return warnings

    async def update(
        self, repo: RepositoryInfo, path: Path, old: str, commit: str, *, background: bool
    ) -> tuple[str, ...]:
        """Move a spare to another commit; write only differing files. Raises what `require_untouched` raises."""
        git = self._git
        if background:
            git = git.in_background()
        await require_untouched(git, repo, path, old)
        async with git.checkouts:
            await worktrees.fill(git, path, None, commit)
            return await populate_submodules(git, repo.worktree_root, path)

    async def claim(self, repo: RepositoryInfo, path: Path, branch: str, commit: str, *, new_branch: bool) -> None:
        """Point a spare at ``commit`` to ``branch``, created first with ``new_branch``; write no file.

        Raises BranchTakenError, WorktreeChangedError. `undo_create` undoes it, and removes the spare.
        """
        git = self._git
        names.check_branch_name(branch)
        async with git.locks.hold(repo.common_dir) as lock:
            git_dir = await git.compute(verify_spare, path, commit)
            await git.compute(branches.require_free, repo, branch, new=new_branch)
            if not new_branch and (tip := await git.compute(branch_tip, repo, branch)) != commit:
                # The spare's files would show as changes that undo the newer commits.
                raise WorktreeChangedError(f"{branch} has moved on to {(tip or 'nothing')[:12]}", worktree=str(path))
            try:
                await git.compute(_take_up, repo, git_dir, path, branch, commit if new_branch else None)
            except GitFailedError:
                # Another git holds a lock file: the git binary waits for it, and names it.
                if new_branch and not await git.compute(branches.made_for, repo, branch, path):
                    await branches.create_branch(git, repo, path, branch, commit, lock)
                target = f"refs/heads/{branch}"
                await git.process.write(
                    git_dir, f"--git-dir={git_dir}", "symbolic-ref", "-m", "claim", "HEAD", target, lock=lock
                )
            await git.verified(path, branch)

    async def remove(
        self,
        repo: RepositoryInfo,
        path: Path,
        *commits: str,
        branch: str = "",
        created_branch_at: str | None = None,
        unfinished: bool = False,
    ) -> Removal:
        """Remove a spare at one of ``commits``. A spare with a person's changes stays as an ordinary worktree; ``kept`` says why.

        ``branch``, which the spare may have been claimed for, is deleted too if it was created at ``created_branch_at``; for
        ``unfinished`` see `handwork.find`.
        """
        git = self._git
        await self._trackers.unwatch(path)
        found = await handwork.find(git.in_background(), repo, path, *commits, branch=branch, unfinished=unfinished)
        if found is not None:
            await handwork.let_go(git, repo, path)
            return Removal(None, (f"{path}: {found}",))
        return await removal.undo_create(git, repo, path, branch, created_branch_at)
