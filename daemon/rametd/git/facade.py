"""`Git`: everything the services ask of the git layer, as coroutines."""

from collections.abc import Mapping
from pathlib import Path

from rametd.git import branches, removal, repository, risk, snapshot, trash, worktrees
from rametd.git import diff as diffs
from rametd.git.context import GitContext
from rametd.git.diff import MAX_PATCH, Diff, DiffStat
from rametd.git.registrations import verify_worktree
from rametd.git.removal import Removal
from rametd.git.repository import Base, Branch, RepositoryInfo
from rametd.git.risk import Risk
from rametd.git.snapshot import Snapshot
from rametd.git.trash import TrashRecord
from rametd.git.worktrees import Worktree


class Git:
    """Made once by the application, closed by `aclose`.

    ``environment`` is what git processes start from (PATH, HOME, SSH_AUTH_SOCK, ...; stray GIT_* variables are dropped),
    ``lock_timeout`` the seconds to wait for a lock file that another git holds. Every method may raise GitFailedError (git's own
    words), GitBusyError (try again later), and for a repository that cannot be opened RepoNotFoundError or
    UnsupportedRepositoryError.
    """

    def __init__(self, environment: Mapping[str, str], *, threads: int = 4, lock_timeout: float = 10.0) -> None:
        self._context = GitContext(threads, environment, lock_timeout)

    async def aclose(self) -> None:
        """Wait for what runs in threads."""
        await self._context.aclose()

    async def discover(self, path: Path) -> RepositoryInfo:
        """The repository around ``path``: any worktree, subdirectory or git directory of it. Raises RepoNotFoundError."""
        return await self._context.compute(repository.discover, path)

    async def resolve_base(self, repo: RepositoryInfo, ref: str | None = None, caller_cwd: Path | None = None) -> Base:
        """The commit to start from: ``ref`` (branch, tag, remote branch, any revision), else what the caller has checked out.

        Raises UnbornBranchError, RefNotFoundError (``data["near"]``), AmbiguousError.
        """
        return await self._context.compute(repository.resolve_base, repo, ref, caller_cwd)

    async def branches(self, repo: RepositoryInfo) -> tuple[Branch, ...]:
        """All local branches, and where each is checked out."""
        return await self._context.compute(branches.list_branches, repo)

    async def branch_tip(self, repo: RepositoryInfo, branch: str) -> str | None:
        """The commit of a local branch, None when there is none."""
        return await self._context.compute(repository.branch_tip, repo, branch)

    async def ahead_behind(self, repo: RepositoryInfo, branch: str, base: str) -> tuple[int, int]:
        """Commits only on ``branch``, commits only on ``base`` (a branch or commit). Raises RefNotFoundError."""
        return await self._context.compute(repository.ahead_behind, repo, branch, base)

    async def delete_branch(self, repo: RepositoryInfo, branch: str, tip: str) -> str | None:
        """Delete the branch if it is still at ``tip`` and checked out nowhere. Returns why it was kept, None when it is gone."""
        async with self._context.locks.hold(repo.common_dir) as lock:
            return await branches.delete_branch(self._context, repo, branch, tip, lock)

    async def worktrees(self, repo: RepositoryInfo) -> tuple[Worktree, ...]:
        """All worktrees, the main one first."""
        return await self._context.compute(worktrees.list_worktrees, repo)

    async def create_worktree(
        self, repo: RepositoryInfo, path: Path, branch: str, commit: str, *, new_branch: bool
    ) -> tuple[str, ...]:
        """Make a linked, locked worktree at ``path`` with ``branch`` checked out, made at ``commit`` when ``new_branch``.

        All or nothing, and safe to repeat after a kill at any point. Sparse checkout follows the worktree that ``repo`` was
        discovered from, as do populated submodules; the lines returned name submodules that could not be filled. Raises
        BadNameError, BranchTakenError (``data["worktree"]``), PathTakenError, RefNotFoundError, before anything is made.
        """
        return await worktrees.create_worktree(self._context, repo, path, branch, commit, new_branch=new_branch)

    async def undo_create(
        self, repo: RepositoryInfo, path: Path, branch: str, created_branch_at: str | None
    ) -> Removal:
        """Undo a creation that did not finish, whatever it left. Give ``created_branch_at`` when it was to make the branch.

        Only what `create_worktree` made for ``path`` goes: not a worktree or branch that was there before.
        """
        return await removal.undo_create(self._context, repo, path, branch, created_branch_at)

    async def verify_worktree(self, path: Path, branch: str | None) -> None:
        """Raise WorktreeChangedError unless ``path`` is a worktree, registered there, with ``branch`` (None: any) checked out."""
        await self._context.compute(verify_worktree, path, branch)

    async def remove_worktree(self, repo: RepositoryInfo, path: Path, branch: str, *, delete_branch: bool) -> Removal:
        """Remove the worktree recorded at ``path``, with all that is in it, and the branch: keep the work first (`trash`).

        Completes whatever the state: directory gone, locked, unregistered, moved. What lies at ``path`` but is not that worktree
        is left, and named in ``kept``. Raises WorktreeChangedError when ``path`` holds the repository itself.
        """
        return await removal.remove_worktree(self._context, repo, path, branch, delete_branch=delete_branch)

    async def work_at_risk(self, repo: RepositoryInfo, worktree: Path, branch: str, base_commit: str | None) -> Risk:
        """What removing the worktree and its branch would lose. Works when the directory is gone, or no
        longer whole; what lies there but is not the worktree is not removed, so that it is not at risk.

        A commit is unique when no other local branch, remote branch or tag reaches it, and ``base_commit`` does not either.
        """
        return await risk.work_at_risk(self._context, repo, worktree, branch, base_commit)

    async def snapshot(self, worktree: Path, message: str) -> Snapshot:
        """Commit all files (untracked ones too, ignored ones not) on top of HEAD, without moving a ref or the user's index."""
        return await snapshot.snapshot(self._context, worktree, message)

    async def trash(self, repo: RepositoryInfo, identity: str, worktree: Path, branch: str) -> TrashRecord:
        """Keep the worktree's files and the branch's tip under ``refs/ramet/trash/<identity>``. Adds to what is there already.

        Works like `work_at_risk` on what is no longer whole. Raises RefNotFoundError when neither files nor branch are left.
        """
        return await trash.trash(self._context, repo, identity, worktree, branch)

    async def drop_trash(self, repo: RepositoryInfo, identity: str) -> None:
        """Forget what was kept under ``identity``; git's own garbage collection frees it."""
        await trash.drop_trash(self._context, repo, identity)

    async def restore_files(self, worktree: Path, commit: str) -> None:
        """Bring back the files of a snapshot or trash commit; HEAD and index stay, so that they show as changes.

        Tracked files that the commit lacks go; untracked ones of other names stay.
        """
        git_dir = await self._context.compute(verify_worktree, worktree, None)
        await trash.restore_files(self._context, worktree, git_dir, commit)

    async def diff(self, worktree: Path, against: str, *, patch: bool = True, max_patch: int = MAX_PATCH) -> Diff:
        """From the commit ``against`` to the files as they are, untracked ones included. ``max_patch`` is bytes."""
        return await diffs.diff(self._context, worktree, against, patch=patch, max_patch=max_patch)

    async def diff_commits(
        self, repo: RepositoryInfo, old: str, new: str, *, patch: bool = True, max_patch: int = MAX_PATCH
    ) -> Diff:
        """Between two commits: for a session whose worktree is gone."""
        return await diffs.diff_commits(self._context, repo, old, new, patch=patch, max_patch=max_patch)

    async def diff_stat(self, worktree: Path, against: str) -> DiffStat:
        """The sums of `diff`, without its text."""
        files = (await self.diff(worktree, against, patch=False)).files
        return DiffStat(len(files), sum(file.additions for file in files), sum(file.deletions for file in files))

    async def changed_files(self, worktree: Path, against: str) -> tuple[str, ...]:
        """Paths that differ, sorted; no renames, no counts: the cheapest."""
        return await diffs.changed_files(self._context, worktree, against)
