"""Spare worktrees: detached, locked, filled beforehand, and claimed in place.

A spare is a linked worktree that Ramet creates, with a detached HEAD, so that it occupies no
branch. A claim creates the branch and points HEAD to it: two small writes under the repository's
lock, without checking out or moving a file. Slow work (filling a worktree, moving it to another
commit) runs outside the lock, at low priority unless a session waits for it.

Ramet never destroys a person's changes in a spare. When a spare is ready, `note_files` records in
its git directory the files that differ from its commit, which the setup may have created. Before
Ramet changes or removes a spare, it compares all files, except ignored ones, with the record, and
gives up a changed spare (`let_go`). A claim writes no file and has no time for that: it checks only
HEAD.
"""

import asyncio
import hashlib
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Final

from rametd.domain.errors import GitFailedError, PathTakenError, RefNotFoundError, WorktreeChangedError
from rametd.git import branches, names, removal, worktrees
from rametd.git.context import GitContext
from rametd.git.file_trees import write_tree
from rametd.git.obstacles import named
from rametd.git.registrations import REASON, line_of, locate, registered_at, stale_entry_at, verify_worktree
from rametd.git.removal import Removal
from rametd.git.repository import RepositoryInfo, branch_tip, commit_exists, open_repository, write_note
from rametd.git.risk import Risk, work_at_risk
from rametd.git.submodules import populate_submodules
from rametd.git.tracking import Trackers

_NOTE: Final = "ramet-spare"


async def note_files(git: GitContext, repo: RepositoryInfo, path: Path, commit: str) -> None:
    """Record the files of a ready spare at ``commit``, including those of its setup. Any later
    change is a person's."""
    git_dir, why = await git.compute(locate, repo.common_dir, path)
    if git_dir is None:
        raise WorktreeChangedError(why or f"the spare {path} is gone", worktree=str(path))
    risk = await work_at_risk(git, repo, path, "", commit)
    digest = await _digest(git, path, git_dir, risk)
    await git.compute(write_note, git_dir, _NOTE, digest)


def forget_note(git_dir: Path) -> None:
    """Delete the record before Ramet writes to the spare. Blocks."""
    (git_dir / _NOTE).unlink(missing_ok=True)


async def persons_changes(
    git: GitContext, repo: RepositoryInfo, path: Path, *commits: str, branch: str = "", unfinished: bool = False
) -> str | None:
    """Describe a person's changes since `note_files` in a spare at one of ``commits``; None without
    any. Reads all files.

    ``branch``: the spare may have been claimed for it. Ramet was still writing an ``unfinished``
    spare without a record: only commits there count as a person's, not changed files.
    """
    git_dir = await git.compute(_git_dir, repo, path)
    if git_dir is None:
        return None
    if git_dir == repo.common_dir:
        return "git's entry of it is gone"
    noted = await git.compute(line_of, git_dir / _NOTE)
    unfinished = unfinished and not noted
    if unfinished and not await git.compute((git_dir / "index").is_file):
        return None  # git writes it last
    head = await git.compute(line_of, git_dir / "HEAD") or ""
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
        return f"it cannot be checked: {error.message}"
    return f"it has {named([*risk.uncommitted, *risk.untracked, *risk.inside, *risk.under_way, *risk.unread])}"


async def changed_before(
    git: GitContext, repo: RepositoryInfo, path: Path, branch: str, commit: str, until: float
) -> tuple[str, ...]:
    """Return the files of a claimed spare that were changed after `note_files` and before
    ``until``, seconds since the epoch."""
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
    """Unlock the worktree: it is then an ordinary one, which Ramet does not remove."""

    def unlock() -> None:
        for entry in registered_at(repo.common_dir, path):
            (entry.admin_dir / "locked").unlink(missing_ok=True)
            forget_note(entry.admin_dir)

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
    """Return the git directory of the spare, which may have staged and committed work even if the
    worktree is gone."""
    git_dir, _ = locate(repo.common_dir, path)
    left = stale_entry_at(repo.common_dir, path) if git_dir is None else None
    return left.admin_dir if left is not None else git_dir


_SPARSE: Final = re.compile(rb"^\s*sparse\w*\s*=.*$", re.IGNORECASE | re.MULTILINE)


async def require_untouched(git: GitContext, repo: RepositoryInfo, path: Path, commit: str) -> None:
    """Raise WorktreeChangedError unless it is a valid spare at ``commit`` without a person's
    changes. The caller writes to it from then on."""
    git_dir = await git.compute(verify_spare, path, commit)
    if (found := await persons_changes(git, repo, path, commit)) is not None:
        raise WorktreeChangedError(f"the spare {path} has a person's changes: {found}", worktree=str(path))
    await git.compute(forget_note, git_dir)


def _take_up(repo: RepositoryInfo, git_dir: Path, path: Path, branch: str, commit: str | None) -> None:
    """Create the branch if ``commit`` is given, and point HEAD to it. Uses libgit2: a git process
    takes as long as the rest of the claim."""
    if commit is not None:
        branches.create_branch_here(repo, path, branch, commit)
    open_repository(git_dir).set_head(f"refs/heads/{branch}")


def inheritance(repo: RepositoryInfo) -> str:
    """Digest of the settings that a new worktree inherits from the worktree of ``repo``: sparse
    checkout, populated submodules. A spare fits only if its digest is the same. Blocks."""
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
    """Git directory of a valid spare: created by Ramet, detached at ``commit``, complete, and
    without a running git."""
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
        self.note = quiet.bind(note_files)
        self.work = git.bind(persons_changes)
        self.changed_before = quiet.bind(changed_before)
        self.require_untouched = git.bind(require_untouched)
        self.verify = git.threaded(verify_spare)
        self.inheritance = git.threaded(inheritance)

    async def make(self, repo: RepositoryInfo, path: Path, commit: str) -> tuple[str, ...]:
        """Create a locked worktree at ``path`` with ``commit`` detached, and fill it at low
        priority; completely or not at all."""
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
        """Move a spare to another commit; write only differing files. Raises what
        `require_untouched` raises."""
        git = self._git
        if background:
            git = git.in_background()
        await require_untouched(git, repo, path, old)
        async with git.checkouts:
            await worktrees.fill(git, path, None, commit)
            return await populate_submodules(git, repo.worktree_root, path)

    async def claim(self, repo: RepositoryInfo, path: Path, branch: str, commit: str, *, new_branch: bool) -> None:
        """Check out ``branch`` in a spare at ``commit``; with ``new_branch`` create it first.
        Writes no file.

        Raises BranchTakenError, WorktreeChangedError. `undo_create` undoes it, and removes the
        spare.
        """
        git = self._git
        names.check_branch_name(branch)
        async with git.locks.hold(repo.common_dir) as lock:
            git_dir = await git.compute(verify_spare, path, commit)
            await git.compute(branches.require_free, repo, branch, new=new_branch)
            if not new_branch and (tip := await git.compute(branch_tip, repo, branch)) != commit:
                # The spare's files would look like changes that undo the newer commits.
                raise WorktreeChangedError(f"{branch} has moved on to {(tip or 'nothing')[:12]}", worktree=str(path))
            try:
                await git.compute(_take_up, repo, git_dir, path, branch, commit if new_branch else None)
            except GitFailedError:
                # Another git process holds a lock file: the git binary waits for it, and names it.
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
        """Remove a spare at one of ``commits``. One with a person's changes becomes an ordinary
        worktree; `Removal.left` says why.

        If the spare was claimed for ``branch``, and the branch was created at
        ``created_branch_at``, delete that too. ``unfinished``: see `persons_changes`.
        """
        git = self._git
        await self._trackers.unwatch(path)
        found = await persons_changes(git.in_background(), repo, path, *commits, branch=branch, unfinished=unfinished)
        if found is not None:
            await let_go(git, repo, path)
            return Removal(None, (f"{path}: {found}",))
        return await removal.undo_create(git, repo, path, branch, created_branch_at)
