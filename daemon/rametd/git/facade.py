"""`Git`: everything the services ask of the git layer, as coroutines.

One class, long as it is, of one method a call: this list is the layer's contract, and what does the work is elsewhere, a noun in each module.
"""

import os
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from pathlib import Path

from rametd.git import (
    branches,
    handwork,
    ignoring,
    inventory,
    landed,
    loose,
    pool,
    refs,
    removal,
    repository,
    risk,
    snapshot,
    syncing,
    upstream,
    worktrees,
)
from rametd.git import diff as diffs
from rametd.git.context import GitContext
from rametd.git.diff import EVERYTHING, MAX_PATCH, Diff, DiffOptions, DiffStat
from rametd.git.hooks import hooks_folder
from rametd.git.inventory import Inventory
from rametd.git.landed import Landed, LandedAnswers, Target
from rametd.git.landing import Landing
from rametd.git.matrix import Matrix, head_commit, tree_of
from rametd.git.registrations import Registration
from rametd.git.remotes import Remotes
from rametd.git.removal import Removal
from rametd.git.repository import Base, Branch, RepositoryInfo
from rametd.git.risk import Risk
from rametd.git.snapshots.snapshots import Snapshots
from rametd.git.syncing import CutOff, Synced
from rametd.git.tracking import Tracker, track
from rametd.git.tree import Tree, ignores_case, read_tree
from rametd.git.upstream import RemoteBranch
from rametd.git.worktrees import Worktree


class Git:
    """Made once by the application, closed by `aclose`.

    ``environment`` is what git processes start from (PATH, HOME, SSH_AUTH_SOCK, ...; stray GIT_* variables are dropped),
    ``lock_timeout`` the seconds to wait for a lock file that another git holds. Every method may raise GitFailedError (git's own
    words), GitBusyError (try again later), and for a repository that cannot be opened RepoNotFoundError or
    UnsupportedRepositoryError.
    """

    def __init__(self, environment: Mapping[str, str], *, threads: int = 4, lock_timeout: float = 10.0) -> None:
        self._trackers: dict[Path, Tracker] = {}  # by worktree, resolved
        self._context = GitContext(threads, environment, lock_timeout, self._trackers)
        self._landed = LandedAnswers()
        self.landing = Landing(self._context)
        self.remotes = Remotes(self._context)
        self.snapshots = Snapshots(self._context)

    async def aclose(self) -> None:
        """Wait for what runs in threads."""
        for worktree in list(self._trackers):
            await self.unwatch_changes(worktree)
        await self._context.aclose()

    async def hooks_folder(self, repo: RepositoryInfo, environment: Mapping[str, str]) -> Path:
        """The directory from which the person's git runs hooks; it need not exist."""
        return await hooks_folder(self._context, repo, environment)

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

    async def files_of(self, repo: RepositoryInfo, commit: str) -> Tree:
        """The files of a commit, and where the symbolic links to directories in it lead."""
        return await self._context.compute(read_tree, repo, commit)

    async def ignores_case(self, common_dir: Path) -> bool:
        """Whether the repository lies where `A` and `a` are one file, as git found out when it was made."""
        return await self._context.compute(ignores_case, common_dir)

    async def delete_branch(self, repo: RepositoryInfo, branch: str, tip: str) -> str | None:
        """Delete the branch if it is still at ``tip`` and checked out nowhere. Returns why it is kept, None when it is gone."""
        if (lost := await self._context.compute(branches.lost_tip, repo, branch)) is not None:
            return f"branch {branch}: it stays, for git has its commit {lost[:12]} no more"
        await self._context.make_durable(repo.common_dir)  # whatever has its commits beside it
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
        await self.unwatch_changes(path)
        return await removal.undo_create(self._context, repo, path, branch, created_branch_at)

    async def branch_names(self, repo: RepositoryInfo) -> frozenset[str]:
        """All local branches, by name alone: the cheapest."""
        return await self._context.compute(branches.branch_names, repo)

    async def free_branch_name(self, repo: RepositoryInfo, text: str, *, fallback: str, taken: Collection[str]) -> str:
        """A name for a new branch, made of ``text``, or ``fallback`` where nothing of it can be kept; none of ``taken``."""
        return await self._context.compute(branches.free_name, repo, text, fallback=fallback, taken=taken)

    async def require_free(self, repo: RepositoryInfo, branch: str, *, new: bool) -> None:
        """Raise BranchTakenError unless the branch can be made (``new``) or checked out in another worktree."""
        await self._context.compute(branches.require_free, repo, branch, new=new)

    async def make_spare(self, repo: RepositoryInfo, path: Path, commit: str) -> tuple[str, ...]:
        """Make a locked worktree at ``path`` with ``commit`` detached, filled at low priority; all or nothing, like `create_worktree`."""
        return await pool.make_spare(self._context, repo, path, commit)

    async def note_spare(self, repo: RepositoryInfo, path: Path, commit: str) -> None:
        """A spare at ``commit`` is ready: what is in it now is ours, such as what its setup made, and what comes later is somebody's."""
        await handwork.note(self._context.in_background(), repo, path, commit)

    async def work_in_spare(self, repo: RepositoryInfo, path: Path, commit: str) -> str | None:
        """What somebody has done in a spare at ``commit`` since it was noted, in words, None where nobody has: a look at all of it."""
        return await handwork.find(self._context, repo, path, commit)

    async def left_in_spare(
        self, repo: RepositoryInfo, path: Path, branch: str, commit: str, until: float
    ) -> tuple[str, ...]:
        """Of a spare that a session has: the files that were changed after it was noted and before ``until``, seconds since the epoch."""
        return await handwork.left_before(self._context.in_background(), repo, path, branch, commit, until)

    async def require_untouched(self, repo: RepositoryInfo, path: Path, commit: str) -> None:
        """Raise WorktreeChangedError unless it is a whole spare at ``commit`` that nobody has worked in. It is written to by us from then on."""
        await pool.require_untouched(self._context, repo, path, commit)

    async def update_spare(
        self, repo: RepositoryInfo, path: Path, old: str, commit: str, *, background: bool
    ) -> tuple[str, ...]:
        """Bring a spare from one commit to another; only what differs is written. Raises what `require_untouched` raises."""
        return await pool.update_spare(self._context, repo, path, old, commit, background=background)

    async def claim_spare(
        self, repo: RepositoryInfo, path: Path, branch: str, commit: str, *, new_branch: bool
    ) -> None:
        """Check ``branch`` out in a spare that stands at its ``commit``, after making it when ``new_branch``: no file is written.

        Raises BranchTakenError, WorktreeChangedError. `undo_create` takes it back, with the spare.
        """
        await pool.claim_spare(self._context, repo, path, branch, commit, new_branch=new_branch)

    async def verify_spare(self, path: Path, commit: str) -> None:
        """Raise WorktreeChangedError unless ``path`` is a spare that is whole and stands at ``commit``. Its files are not looked at."""
        await self._context.compute(pool.verify_spare, path, commit)

    async def remove_spare(
        self,
        repo: RepositoryInfo,
        path: Path,
        *commits: str,
        branch: str = "",
        created_branch_at: str | None = None,
        unfinished: bool = False,
    ) -> Removal:
        """Remove a spare that stands at one of ``commits``. One that somebody has worked in stays, told in ``kept``, and is theirs from then on: a
        worktree like any that people make.

        With ``branch`` it may have been claimed for that, which goes too where it was made at ``created_branch_at``. One that is ``unfinished`` and
        was not noted was being written to by us: what of its files is ours cannot be told, and commits alone count.
        """
        await self.unwatch_changes(path)
        return await pool.remove_spare(
            self._context,
            repo,
            path,
            *commits,
            branch=branch,
            created_branch_at=created_branch_at,
            unfinished=unfinished,
        )

    async def inheritance(self, repo: RepositoryInfo) -> str:
        """A digest of what a new worktree takes over from where ``repo`` was discovered: sparse checkout, populated submodules."""
        return await self._context.compute(pool.inheritance, repo)

    async def files_between(self, repo: RepositoryInfo, old: str, new: str) -> int:
        """How many files differ between two commits."""
        return await self._context.compute(pool.files_between, repo, old, new)

    async def initial_commit(self, repo: RepositoryInfo, message: str) -> str:
        """Make an empty first commit, by the person, on the unborn branch that ``repo`` has checked out; returns it.

        The index and the files there stay as they are.
        """
        return await pool.initial_commit(self._context, repo, message)

    async def find_remote_branch(self, repo: RepositoryInfo, name: str) -> RemoteBranch | None:
        """The remote branch that ``name`` means, as for git's own checkout. Raises AmbiguousError, BranchTakenError."""
        return await self._context.compute(upstream.find_remote_branch, repo, name)

    async def track(self, repo: RepositoryInfo, branch: str, followed: RemoteBranch) -> None:
        """Have a local branch follow a remote one."""
        await upstream.track(self._context, repo, branch, followed)

    async def fetch_base(
        self, repo: RepositoryInfo, ref: str | None, caller_cwd: Path | None, environment: Mapping[str, str]
    ) -> Base | None:
        """Fetch the remote branch that ``ref`` is or follows. Returns where it stands when it goes on from a local branch, else None.

        ``environment`` is the person's, for keys and credential helpers. Raises RefNotFoundError when there is none, RemoteFailedError when the remote fails or is silent for a minute.
        """
        return await upstream.fetch_base(self._context, repo, ref, caller_cwd, environment)

    def trust(self, common_dir: Path) -> None:
        """A person registered this repository: what its own configuration names may run."""
        self._context.trusted.add(common_dir)

    async def verify_worktree(self, path: Path, branch: str | None) -> None:
        """Raise WorktreeChangedError unless ``path`` is a worktree, registered there, with ``branch`` (None: any) checked out."""
        await self._context.verified(path, branch)

    async def remove_worktree(self, repo: RepositoryInfo, path: Path, branch: str, *, delete_branch: bool) -> Removal:
        """Remove the worktree recorded at ``path``, with all that is in it, and the branch: where there is work, shelve it instead.

        Completes whatever the state: directory gone, locked, unregistered, moved. What lies at ``path`` but is not that worktree
        is left, and named in ``kept``. Worktrees inside it go with it. Raises WorktreeChangedError when ``path`` holds the repository itself.
        """
        return await removal.remove_worktree(self._context, repo, path, branch, delete_branch=delete_branch)

    async def make_durable(self, repo: RepositoryInfo, worktree: Path) -> None:
        """Return once what the repository has, and the files of a worktree, would be there after a loss of power: before something is told to be so
        that nothing would do again. What is destroyed here waits for that by itself. Costs what `durability.make_durable` does."""
        await self._context.make_durable(repo.common_dir, worktree.parent)

    async def unstored(self, repo: RepositoryInfo, worktree: Path) -> tuple[str, ...]:
        """Git's words for each file that it cannot read or store now, by trying; none for what lies there and is not the worktree."""
        return await risk.unstored(self._context, repo, worktree)

    async def delete_tree(self, folder: Path) -> None:
        """Delete a directory with all that is in it, also what may not be written to; nothing is done where there is none."""
        await self._context.delete(removal.delete_tree, folder)

    async def work_at_risk(self, repo: RepositoryInfo, worktree: Path, branch: str, base_commit: str | None) -> Risk:
        """What removing the worktree and its branch would lose. Works when the directory is gone, or no
        longer whole; what lies there but is not the worktree is not removed, so that it is not at risk.

        A commit is unique when no other local branch, remote branch or tag reaches it, and ``base_commit`` does not either.
        """
        return await risk.work_at_risk(self._context, repo, worktree, branch, base_commit)

    async def sweep(self, repo: RepositoryInfo) -> int:
        """Take the names of objects, and of refs of ours, of which a loss of power has left no more, or not all, out of git's way; how many."""
        return await self._context.compute(loose.sweep, repo.common_dir)

    async def last_target(self, repo: RepositoryInfo, ref: str) -> str:
        """What a ref kept last, by its reflog, which git writes where it was told to for every ref; "" where there is none."""
        return await self._context.compute(refs.last_target, repo.common_dir, ref)

    async def has_object(self, repo: RepositoryInfo, name: str) -> bool:
        """Whether git has an object."""
        return await self._context.compute(lambda: name in repository.open_repository(repo.common_dir))

    async def holder(self, repo: RepositoryInfo, name: str, paths: Sequence[str], *, without: str) -> str:
        """A branch, remote branch or tag, other than the branch ``without``, that has all of ``paths`` as the commit or tree ``name`` has them; "" where none has.

        Raises RefNotFoundError where the commit or its files are not in the repository.
        """
        return await self._context.compute(inventory.holder, repo, name, paths, without)

    async def drop_ref(self, repo: RepositoryInfo, ref: str, commit: str | None = None) -> None:
        """Delete a ref below ``refs/ramet/``; none is fine. With ``commit`` only while it keeps that, else GitFailedError."""
        assert ref.startswith("refs/ramet/"), ref
        await self._context.make_durable(repo.common_dir)  # whatever has what it keeps beside it
        await refs.drop(self._context, repo, ref, commit)

    async def drop_refs(self, repo: RepositoryInfo, *folders: str) -> None:
        """Delete all refs below folders of ``refs/ramet/``, in one step."""
        assert all(folder.startswith("refs/ramet/") for folder in folders), folders
        await refs.drop_all(self._context, repo, *folders)

    async def landing_targets(self, repo: RepositoryInfo, base_ref: str, branch: str) -> tuple[Target, ...]:
        """Where work of ``branch`` that began at ``base_ref`` lands: that branch, and the remote's; else the default branch."""
        return await self._context.compute(landed.targets, repo, base_ref, branch)

    async def landed(
        self,
        repo: RepositoryInfo,
        tip: str,
        base_commit: str,
        targets: Sequence[Target],
        *,
        pull_request_state: str | None = None,
        background: bool = False,
    ) -> Landed:
        """Whether the commits from ``base_commit`` to ``tip`` are on one of the targets, by content: merged, squashed, rebased, picked.

        A tip that is the base's own has not landed. ``pull_request_state`` is that of one whose head is ``tip``: "merged" counts. What
        is not committed is not looked at. Answers are kept by the commits.
        """
        context = self._context.in_background() if background else self._context
        return await landed.landed(
            context, self._landed, repo, tip, base_commit, targets, pull_request_state=pull_request_state
        )

    async def inventory(self, repo: RepositoryInfo) -> Inventory:
        """What of ours there is in a repository: refs, entries of worktrees, branches that we made."""
        return await self._context.compute(inventory.take, repo)

    async def mirrored(self, repo: RepositoryInfo) -> tuple[str, ...]:
        """The remotes from which a ``git fetch --prune`` deletes branches, and maybe refs of ours, that they do not have, as in a mirror clone."""
        return await self._context.compute(inventory.mirrored, repo)

    async def reachable(self, repo: RepositoryInfo, commit: str) -> bool:
        """Whether a branch, remote branch or tag reaches the commit."""
        return await inventory.reachable(self._context, repo, commit)

    async def refs_below(self, repo: RepositoryInfo, *folders: str) -> dict[str, str]:
        """The refs below some folders of ``refs/``, with their commits: cheaper than an inventory where there are many others."""
        return await refs.refs_below(self._context, repo, folders)

    async def last_checked_out(self, entry: Registration) -> str | None:
        """The commit that a worktree had checked out last, also when its branch is gone; None when that is not written down."""
        return await self._context.compute(inventory.last_checked_out, entry)

    async def watch_changes(self, worktree: Path) -> Tracker:
        """Follow what changes in a worktree from now on; snapshots and diffs of it are quick then. The same one when it is followed already.

        Raises WorktreeChangedError. A system without file watches left makes a tracker that says so (`Tracker.live`).
        """
        found = self._trackers.get(worktree)
        if found is not None:
            return found
        made = await track(self._context, worktree)
        found = self._trackers.setdefault(worktree, made)
        if found is not made:  # somebody else was faster
            await made.close()
        return found

    async def unwatch_changes(self, worktree: Path) -> None:
        """Stop following it; one that is not followed is no error."""
        tracker = self._trackers.pop(worktree, None)
        if tracker is not None:
            await tracker.close()

    async def sync(
        self,
        worktree: Path,
        branch: str | None,
        commit: str,
        *,
        rebase: bool,
        message: str,
        source: Path | None = None,
        before_changing: Callable[[Synced], Awaitable[None]] | None = None,
    ) -> Synced:
        """Bring the commits of ``commit`` into the branch checked out, by a merge or by a rebase onto it; where that conflicts nothing was touched.
        Submodules follow the commits that it brings, from what ``source``, the person's checkout, has of them.
        ``before_changing`` is awaited with what it comes to, once it is known that it will succeed and before git writes a file.

        Raises WorktreeChangedError in the middle of a merge or the like, and where uncommitted changes or untracked or ignored files are in the way.
        """
        return await syncing.sync(
            self._context,
            worktree,
            branch,
            commit,
            rebase=rebase,
            message=message,
            source=source,
            before_changing=before_changing,
        )

    async def settle_sync(
        self, worktree: Path, branch: str | None, old: str, new: str, source: Path | None = None
    ) -> CutOff:
        """End a sync from ``old`` to ``new`` that was cut off, where its files are complete; what else it has left stays as it is.

        Waits for a git of it that is still writing.
        """
        return await syncing.settle(self._context, worktree, branch, old, new, source)

    def matrix(self, repo: RepositoryInfo) -> Matrix:
        """What compares the work of a repository's sessions, and keeps what it computed: made once for each."""
        return Matrix(self._context, repo.common_dir)

    async def tree_of(self, repo: RepositoryInfo, commit: str) -> str:
        """The tree of a commit that exists."""
        return await self._context.compute(tree_of, repo.common_dir, commit)

    async def head_commit(self, worktree: Path) -> str | None:
        """The commit that a worktree has checked out, None before the first one."""
        return await self._context.compute(head_commit, worktree)

    def tracker(self, worktree: Path) -> Tracker | None:
        """The worktree's tracker, where it is followed."""
        return self._trackers.get(worktree)

    async def tree(self, worktree: Path) -> str:
        """The worktree's files as a tree object, untracked ones included and ignored ones not."""
        return (await snapshot.current_tree(self._context, worktree)).tree

    async def diff(
        self,
        worktree: Path,
        against: str,
        *,
        patch: bool = True,
        max_patch: int = MAX_PATCH,
        options: DiffOptions = EVERYTHING,
    ) -> Diff:
        """From ``against``, a commit or tree, to the files as they are, untracked ones included. ``max_patch`` is bytes."""
        return await diffs.diff(self._context, worktree, against, patch=patch, max_patch=max_patch, options=options)

    async def diff_commits(
        self,
        repo: RepositoryInfo,
        old: str,
        new: str,
        *,
        patch: bool = True,
        max_patch: int = MAX_PATCH,
        options: DiffOptions = EVERYTHING,
    ) -> Diff:
        """Between two commits or trees: for a session whose worktree is gone."""
        return await diffs.diff_commits(
            self._context, repo, old, new, patch=patch, max_patch=max_patch, options=options
        )

    async def diff_stat(self, worktree: Path, against: str) -> DiffStat:
        """The sums of `diff`, without its text."""
        files = (await self.diff(worktree, against, patch=False)).files
        return DiffStat(len(files), sum(file.additions for file in files), sum(file.deletions for file in files))

    async def files_tree(self, worktree: Path) -> str:
        """The tree of the files as they are, untracked ones included: what `changed_files` may be asked against later."""
        return (await snapshot.current_tree(self._context, worktree)).tree

    async def merge_base(self, repo: RepositoryInfo, one: str, other: str) -> str | None:
        """The commit at which two histories parted, None where they have none in common. Raises RefNotFoundError."""
        return await self._context.compute(repository.merge_base, repo, one, other)

    async def changed_files(self, worktree: Path, against: str) -> tuple[str, ...]:
        """Paths that differ, sorted; no renames, no counts: the cheapest."""
        return await diffs.changed_files(self._context, worktree, against)

    async def file_at(self, repo: RepositoryInfo, commit: str, paths: tuple[str, ...]) -> bytes | None:
        """The first of these paths that is a file in a commit, whatever the case of its letters; None when none is."""
        return await self._context.compute(repository.file_at, repo, commit, paths)

    async def files_at(
        self, repo: RepositoryInfo, revision: str, paths: tuple[str, ...], *, anywhere: str = ""
    ) -> dict[str, bytes]:
        """The files at ``paths`` of a revision, and below those that are directories there, by path.

        ``anywhere``: also the files below all directories of this name.
        """
        return await self._context.compute(repository.files_at, repo, revision, paths, anywhere)

    async def tracked_below(self, worktree: Path, name: str) -> tuple[str, ...]:
        """Paths in the worktree's index that have a part of this name, in any letter case."""
        paths = (f":(icase,glob)**/{name}/**", f":(icase,glob)**/{name}")
        listed = await self._context.process.read(worktree, "ls-files", "-z", "--", *paths)
        return tuple(os.fsdecode(path) for path in listed.split(b"\0") if path)

    async def tracked_among(self, worktree: Path, paths: Sequence[str]) -> frozenset[str]:
        """Those of ``paths``, relative to the worktree's top, that its index has."""
        return await ignoring.tracked_among(self._context, worktree, paths)

    async def ignored_files(self, worktree: Path) -> tuple[str, ...]:
        """Untracked paths that git ignores; a directory that is ignored as a whole is one of them, and ends in ``/``."""
        arguments = ("ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory")
        listed = await self._context.process.read(worktree, *arguments)
        return tuple(os.fsdecode(path) for path in listed.split(b"\0") if path)

    async def ignored_among(self, worktree: Path, paths: Sequence[str]) -> frozenset[str]:
        """Of paths that need not be there, those that git would ignore and neither tracks itself nor as what is above them. One that ends in ``/`` is
        meant as a directory, any other as a file or a link. None may lie beyond a link. Raises WorktreeChangedError."""
        return await ignoring.ignored_among(self._context, worktree, paths)
