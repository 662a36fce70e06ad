"""Bring a base's commits into the branch of a worktree by merge or rebase; after a conflict change
nothing.

The result is first created outside the worktree: a merge in the object database, a rebase in a
checkout without files. Then git switches the worktree from the old commit to the new one, and
refuses if files are in the way. So a conflict changes nothing, and a kill leaves one of these
states:

- nothing or everything is written;
- the files are written, HEAD is detached at the new commit, and the branch is at the old one:
`settle` finishes this;
- git itself was killed between its first and its last file: this stays as it is and is reported.
"""

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Final

from rametd.domain.errors import GitBusyError, GitFailedError, WorktreeChangedError
from rametd.git.context import GitContext
from rametd.git.file_trees import current_tree
from rametd.git.incomplete import check_out, leave_killed
from rametd.git.landing import by, identity
from rametd.git.obstacles import additions, named, refuse_repositories, uncommitted
from rametd.git.process import Completed, at, failed
from rametd.git.repository import head_of, open_repository, peel
from rametd.git.scratch import without_files
from rametd.git.submodules import follow_submodules
from rametd.git.underway import busy_with, ending_words, refuse_locked

_REFLOG: Final = "ramet: sync"
_REBASE: Final = (
    *("-c", "rebase.backend=merge"),  # the other backend applies patches to files
    # rebase.updateRefs would also move other branches, the person's and other sessions'.
    *("-c", "rebase.updateRefs=false", "-c", "rebase.autoSquash=false"),
)


@dataclass(frozen=True, slots=True)
class Synced:
    """``commits`` were added to the branch. With ``conflicts`` (paths) nothing has changed.
    ``warnings`` name submodules that were not updated."""

    old: str
    new: str
    commits: int
    conflicts: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


class CutOff(StrEnum):
    """State of the worktree after an interrupted sync."""

    NOTHING = "nothing"
    DONE = "done"
    HALF = "half"
    """Some files are those of the new commit; the branch is unchanged."""
    DETACHED = "detached"
    """The branch is not checked out, and new commits exist."""


async def _take_along(git: GitContext, worktree: Path, there: tuple[str, ...], branch: str, old: str, new: str) -> None:
    """Move the branch to the commit of its files and the detached HEAD, and check it out."""
    ref = f"refs/heads/{branch}"
    done = await git.process.run(worktree, *there, "update-ref", "-m", _REFLOG, ref, new, old)
    if done.returncode != 0:
        # Another process committed to the branch meanwhile. Git undoes its own change, and refuses
        # if files were changed since.
        await git.process.write(worktree, *there, "checkout", "--quiet", "--no-overwrite-ignore", branch, "--")
        raise WorktreeChangedError(
            f"{branch} was moved in the same moment ({done.words})", hint="sync again", worktree=str(worktree)
        )
    await git.process.write(worktree, *there, "symbolic-ref", "-m", _REFLOG, "HEAD", ref)


async def _settle(git: GitContext, worktree: Path, branch: str | None, old: str, new: str) -> CutOff:
    git_dir = await git.verified(worktree, None)
    there = at(git_dir, worktree)

    def where() -> tuple[str | None, bool, str | None]:
        """Return the branch that is checked out, whether it has the new commit, and the commit of
        HEAD."""
        repository = open_repository(git_dir)
        head = head_of(repository)
        has = head.commit is not None and (head.commit == new or repository.descendant_of(head.commit, new))
        return head.branch, has, head.commit

    async with _locked(git, git_dir):  # a git process that outlived its daemon may still be writing
        on, has, head = await git.compute(where)
        if branch is not None and on is None and head == new:
            tip = await git.compute(peel, open_repository(git_dir), f"refs/heads/{branch}")
            if tip not in {old, new}:
                return CutOff.DETACHED
            if tip == old and await leave_killed(git, worktree, git_dir, branch, old, new):
                return CutOff.HALF
            await _take_along(git, worktree, there, branch, tip, new)
            return CutOff.DONE
        if has:
            return CutOff.DONE if on == branch else CutOff.DETACHED
        if head != old:
            return CutOff.NOTHING
        now = (await current_tree(git, worktree, git_dir)).tree
        written = await _names_of(git, worktree, there, old, new) - await _names_of(git, worktree, there, now, new)
        return CutOff.HALF if written else CutOff.NOTHING


@asynccontextmanager
async def _locked(git: GitContext, git_dir: Path) -> AsyncIterator[int]:
    """Hold the worktree's lock. Git inherits it, so that the next daemon waits for the git process
    of a killed one."""
    async with AsyncExitStack() as stack:
        while True:
            try:
                lock = await stack.enter_async_context(git.locks.hold(git_dir))
            except GitBusyError:
                continue
            break
        yield lock


async def _merged(
    git: GitContext,
    worktree: Path,
    there: tuple[str, ...],
    old: str,
    commit: str,
    message: str,
    environment: Mapping[str, str],
) -> str | tuple[str, ...]:
    """Merge a commit in the object database; return the result or the paths in conflict. A
    fast-forward returns the commit itself."""
    if await _is_set(git, worktree, there, "merge.verifySignatures"):
        await git.process.read(worktree, *there, "verify-commit", commit)
    forward = await git.process.run(worktree, *there, "config", "--get", "merge.ff")
    ahead = await git.process.read(worktree, *there, "rev-list", "--count", "--max-count=1", f"{commit}..{old}")
    if not int(ahead) and forward.stdout.strip().lower() not in {b"false", b"no", b"off", b"0"}:
        return commit
    words = ("merge-tree", "--write-tree", "--name-only", "--no-messages", "-z", old, commit)
    trial = await git.process.run(worktree, *there, *words)
    tree, _, paths = trial.stdout.partition(b"\0")
    if trial.returncode == 1:
        return _names(paths)
    if trial.returncode:
        raise failed(trial, ("merge",))
    signed = ("-S",) if await _is_set(git, worktree, there, "commit.gpgSign") else ()
    person = await identity(git, worktree, environment)
    made = await git.process.write(
        worktree,
        *(*there, "commit-tree", *signed, "-p", old, "-p", commit, "-F", "-", os.fsdecode(tree)),
        stdin=message.encode(errors="surrogateescape"),
        environment=by(person, person),
    )
    return made.decode().strip()


async def _rebased(
    git: GitContext, worktree: Path, git_dir: Path, old: str, commit: str, environment: Mapping[str, str]
) -> str | tuple[str, ...]:
    """Rebase onto ``commit``; return the last new commit or the paths in conflict."""
    async with without_files(git, git_dir, old) as scratch:
        folder = scratch.folder / "files"
        who = by(None, await identity(git, worktree, environment))
        words = (*_REBASE, "rebase", "--quiet", "--no-autostash", commit)
        done = await git.process.run(folder, *scratch.there, *words, environment=who)
        if done.returncode == 0:
            return (await git.process.read(folder, *scratch.there, "rev-parse", "HEAD")).decode().strip()
        unmerged = _names(
            await git.process.read(folder, *scratch.there, "diff", "--name-only", "--diff-filter=U", "-z")
        )
        if not unmerged:
            raise failed(done, words)
        return unmerged


async def _is_set(git: GitContext, worktree: Path, there: tuple[str, ...], name: str) -> bool:
    done = await git.process.run(worktree, *there, "config", "--type=bool", "--get", name)
    return done.stdout.strip() == b"true"


async def _names_of(git: GitContext, worktree: Path, there: tuple[str, ...], one: str, other: str) -> set[str]:
    output = await git.process.read(
        worktree, *there, "diff-tree", "-r", "-z", "--no-renames", "--name-only", one, other
    )
    return set(_names(output))


async def _refuse_overwriting(git: GitContext, worktree: Path, there: tuple[str, ...], coming: dict[str, str]) -> None:
    await refuse_repositories(git, worktree, coming)
    if found := await uncommitted(git, worktree, there, coming):
        raise WorktreeChangedError(
            f"untracked or ignored files are in the way: {named(found)}",
            hint="the base has files at these paths; move yours out of the worktree, then sync again",
            worktree=str(worktree),
        )


def _refused(done: Completed, words: tuple[str, ...]) -> GitFailedError | WorktreeChangedError:
    """Build the error from git's output, which names the files in the way, indented by a tab."""
    lines = done.stderr.decode(errors="replace").splitlines()
    listed = sorted(line.strip() for line in lines if line.startswith("\t"))
    if not listed:
        return failed(done, words)
    return WorktreeChangedError(
        f"uncommitted changes are in the way: {named(listed)}",
        hint="commit them in the worktree, or have the agent commit them, then sync again",
    )


def _head(git_dir: Path) -> str:
    head = head_of(open_repository(git_dir))
    if head.commit is None:
        raise WorktreeChangedError(
            f"{head.branch} no longer has a commit", hint="the branch was deleted; look at its worktree"
        )
    return head.commit


def _names(output: bytes) -> tuple[str, ...]:
    return tuple(dict.fromkeys(os.fsdecode(name) for name in output.split(b"\0") if name))


class Syncing:
    """Merges and rebases of a base into a worktree. Every method may raise the errors of `Git`."""

    def __init__(self, git: GitContext) -> None:
        self._git = git

    async def sync(
        self,
        worktree: Path,
        branch: str | None,
        commit: str,
        *,
        rebase: bool,
        message: str,
        source: Path | None = None,
        environment: Mapping[str, str] = MappingProxyType({}),
        before_changing: Callable[[Synced], Awaitable[None]] | None = None,
    ) -> Synced:
        """Merge ``commit`` into the checked-out branch, or rebase the branch onto it. A conflict
        changes nothing.

        Submodules are updated from ``source``, the person's checkout. New commits have the identity
        in ``environment``. The function awaits ``before_changing`` with the certain result before
        git writes a file. Raise WorktreeChangedError during a merge or the like, and if
        uncommitted, untracked or ignored files are in the way.
        """
        git = self._git
        git_dir = await git.verified(worktree, None)
        there = at(git_dir, worktree)
        if busy := await git.compute(busy_with, git_dir):  # first, as during a rebase no branch is checked out
            raise WorktreeChangedError(
                f"{worktree} is in the middle of {busy}",
                hint=f"end it by {ending_words(worktree, busy)}, then sync again",
                worktree=str(worktree),
            )
        await git.verified(worktree, branch)
        old = await git.compute(_head, git_dir)
        missing = int(await git.process.read(worktree, *there, "rev-list", "--count", f"{old}..{commit}"))
        if not missing:
            return Synced(old, old, 0)
        new = await (
            _rebased(git, worktree, git_dir, old, commit, environment)
            if rebase
            else _merged(git, worktree, there, old, commit, message, environment)
        )
        if not isinstance(new, str):
            return Synced(old, old, 0, new)
        coming = await additions(git, worktree, there, "diff-tree", old, new)
        # Git checks this again. This check gives a better message, and avoids a checkpoint before a
        # refusal.
        await _refuse_overwriting(git, worktree, there, coming)
        await refuse_locked(git, git_dir)
        if before_changing is not None:
            await before_changing(Synced(old, new, missing))
        await git.make_durable(git_dir)
        async with _locked(git, git_dir) as lock:
            words = ("checkout", "--quiet", "--no-overwrite-ignore", "--no-recurse-submodules", "--detach", new)
            done = await check_out(
                git, worktree, git_dir, branch, old, new, words, {"GIT_REFLOG_ACTION": _REFLOG}, lock
            )
            if done.returncode != 0:
                raise _refused(done, words)
            if branch is not None:
                await _take_along(git, worktree, there, branch, old, new)
        return Synced(old, new, missing, warnings=await follow_submodules(git, source, worktree, old, new))

    async def settle(
        self, worktree: Path, branch: str | None, old: str, new: str, source: Path | None = None
    ) -> CutOff:
        """Finish an interrupted sync from ``old`` to ``new`` if its files are complete; leave any
        other state as it is.

        Waits for a git process of that sync that still writes.
        """
        git = self._git
        left = await _settle(git, worktree, branch, old, new)
        if left == CutOff.DONE:
            await follow_submodules(git, source, worktree, old, new)
        return left
