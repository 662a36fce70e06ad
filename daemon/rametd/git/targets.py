"""Target branches: find where one is checked out, and move it once.

`git update-ref` moves a branch without a checkout, by compare-and-set. A checked-out one is
fast-forwarded by git's own merge, which changes files, index and branch together, or refuses.
Nothing is forced, stashed or overwritten.

The race: after our check of the checkout its owner may switch branches, and git has no lock for
both. If the owner switches to another branch, git refuses the merge, unless that branch is an
ancestor of the landed commit; git then fast-forwards that one, as if its owner had pulled. If the
owner checks the target out after our check, the files there stay unchanged, and look like changes
that undo the landed ones. Both windows take milliseconds and lose nothing.
"""

import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rametd.domain.errors import GitFailedError
from rametd.git.context import GitContext
from rametd.git.incomplete import ABSENT, check_out, entries, take_back_killed
from rametd.git.obstacles import uncommitted
from rametd.git.registrations import existing_git_dir, line_of, registrations
from rametd.git.repository import RepositoryInfo, branch_tip, open_repository
from rametd.git.underway import busy_with, ending_words, refuse_locked

_FORWARD: Final = (
    *("-c", "merge.verifySignatures=false"),
    *("merge", "--quiet", "--ff-only", "--no-autostash", "--no-overwrite-ignore", "--no-stat"),
)


@dataclass(frozen=True, slots=True)
class Checkout:
    """A worktree that has a branch checked out. ``blocked``: why the branch cannot be moved there,
    or ""."""

    path: Path
    blocked: str


class Targets:
    """Target branches. Every method may raise the errors of `Git`."""

    def __init__(self, git: GitContext) -> None:
        self._git = git

    async def has_upstream(self, repo: RepositoryInfo, branch: str) -> bool:
        """Return whether the branch has an upstream on a remote."""

        def work() -> bool:
            config = open_repository(repo.common_dir).config
            remote = f"branch.{branch}.remote"
            return f"branch.{branch}.merge" in config and remote in config and config[remote] != "."

        return await self._git.compute(work)

    async def checkout(self, repo: RepositoryInfo, branch: str) -> Checkout | None:
        """Return the worktree that has the branch checked out, or is rebasing or bisecting it, or
        None."""
        return await self._git.compute(_checkout, repo, branch)

    async def in_the_way(self, checkout: Checkout, old: str, new: str) -> tuple[str, ...]:
        """Return files of the checkout for which git would refuse a fast-forward from ``old`` to
        ``new``: changed ones that it touches, and untracked ones in the place of others.

        Git writes a file that is merely missing, and leaves one that is staged as in ``new``.
        """
        git, path = self._git, checkout.path
        coming = await entries(git, path, (), old, new)
        status = await git.process.read(
            path, *("status", "--porcelain=v2", "-z", "--untracked-files=no", "--ignore-submodules=all", "--no-renames")
        )
        changed: set[str] = set()
        missing: set[str] = set()
        for record in os.fsdecode(status).split("\0"):
            name = _path_of(record)
            if name not in coming:
                continue
            if record.startswith("1 .D"):
                missing.add(name)
            elif not (record.startswith("1 ") and record.split(" ")[7] == coming[name].new):
                changed.add(name)
        places = [
            name
            for name, entry in coming.items()
            if (entry.new_mode != entry.old_mode and entry.new_mode != ABSENT) or name in missing
        ]
        return tuple(sorted({*changed, *await uncommitted(git, path, (), places)}))

    async def move(self, repo: RepositoryInfo, branch: str, old: str, new: str, words: str) -> str:
        """Fast-forward the branch from ``old`` to ``new``; return "", or why it has to wait.

        The commit of the branch decides whether it has moved, not git's exit status. ``words`` are
        for the reflog. Raise GitFailedError, GitBusyError and CheckoutIncompleteError if git fails.
        """
        git = self._git
        await git.make_durable(repo.common_dir)  # else the person's branch could lose its commit in a power cut
        # The git process inherits the lock: after a kill, the next daemon waits for it before it
        # reads the branch.
        async with git.locks.hold(repo.common_dir) as lock:
            found = await git.compute(_checkout, repo, branch)
            if found is not None and found.blocked:
                return found.blocked
            before = await git.compute(branch_tip, repo, branch)
            if before not in {old, new}:  # its owner has moved it, and a merge would start from there
                return f"{branch} has moved to {(before or 'nothing')[:12]}"
            if found is None:
                done = await git.process.run(
                    repo.common_dir, "update-ref", "-m", words, f"refs/heads/{branch}", new, old, lock=lock
                )
            else:
                git_dir = await git.verified(found.path, branch)
                await refuse_locked(git, git_dir)
                done = await check_out(
                    git, found.path, git_dir, branch, old, new, (*_FORWARD, new), {"GIT_REFLOG_ACTION": words}, lock
                )
            tip = await git.compute(branch_tip, repo, branch)
        if tip == new:
            return ""
        where = f"git merge in {found.path}" if found is not None else "git update-ref"
        raise GitFailedError(f"{where}: {done.words}")

    async def settle(self, repo: RepositoryInfo, branch: str, old: str, new: str) -> tuple[str, ...]:
        """Take back the files that the git process of a killed `move` has written, if the branch
        has not moved; return their paths."""
        git = self._git
        async with git.locks.hold(repo.common_dir):
            found = await git.compute(_checkout, repo, branch)
            if found is None or found.blocked:
                return ()
            git_dir = await git.verified(found.path, branch)
            return await take_back_killed(git, found.path, git_dir, branch, old, new)

    async def holds(self, repo: RepositoryInfo, branch: str, commit: str) -> bool:
        """Return whether the branch contains ``commit``. Waits for a git process of a killed daemon
        that still moves it."""
        git = self._git
        async with git.locks.hold(repo.common_dir):
            tip = await git.compute(branch_tip, repo, branch)
            if tip is None or tip == commit:
                return tip == commit
            done = await git.process.run(repo.common_dir, "merge-base", "--is-ancestor", commit, tip)
        if done.returncode not in (0, 1):
            raise GitFailedError(f"git merge-base: {done.words}")
        return done.returncode == 0


def _checkout(repo: RepositoryInfo, branch: str) -> Checkout | None:
    ref = f"refs/heads/{branch}"
    found: dict[Path, Checkout] = {}
    places = [] if repo.is_bare else [repo.root]
    for entry in registrations(repo.common_dir):
        # During a rebase or bisect, HEAD has no branch.
        if entry.path is not None and entry.branch in {branch, None}:
            places.append(entry.path)
            if entry.branch == branch and existing_git_dir(entry.path) != entry.admin_dir:
                prune = shlex.join(("git", "-C", str(repo.root), "worktree", "prune"))
                words = f"{branch} is checked out in {entry.path}, which is missing: run `git worktree repair` where you moved it, or `{prune}`"
                return Checkout(entry.path, words)
    for path in places:
        git_dir = existing_git_dir(path)
        if git_dir is None or not path.is_dir():
            continue
        rebased = {line_of(git_dir / folder / "head-name") for folder in ("rebase-merge", "rebase-apply")}
        bisected = {f"refs/heads/{line_of(git_dir / 'BISECT_START')}"}
        if line_of(git_dir / "HEAD") == f"ref: {ref}" or ref in rebased | bisected:
            busy = busy_with(git_dir)
            words = f"{busy} is under way in {path}: end it by {ending_words(path, busy)}" if busy else ""
            found[git_dir] = Checkout(path, words)
    if len(found) > 1:
        # By `git checkout -B` or `--ignore-other-worktrees`. Git moves the files of one worktree;
        # those of the others would look like changes that undo the landed ones.
        first, second, *_ = (str(each.path) for each in found.values())
        return Checkout(Path(first), f"{branch} is checked out in {first} and {second}: switch one to another branch")
    if found:
        return next(iter(found.values()))
    if not repo.is_bare and repo.root == repo.common_dir and line_of(repo.common_dir / "HEAD") == f"ref: {ref}":
        # After `git init --separate-git-dir`: if only the branch moved, that checkout would undo
        # the landed changes.
        return Checkout(repo.root, f"git does not say where the checkout of {branch} is; switch it to another branch")
    return None


def _path_of(record: str) -> str:
    """Return the path in a record of `git status --porcelain=v2`; an unmerged one has two more
    fields before it."""
    return record.split(" ", 10 if record.startswith("u ") else 8)[-1]
