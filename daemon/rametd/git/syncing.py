"""Bringing a base's commits into the branch of a worktree: by merge or rebase, or, where that conflicts, not at all.

What comes of it is made beside the worktree: a merge among objects, a rebase in a checkout without files. Only then does git go from the one commit
to the other in the worktree, as it does for a person: it refuses where anything is in the way. So nothing has to be taken back, neither after a conflict
nor after a kill, which leaves one of these:

- nothing was written, or all;
- the files are there, HEAD is detached at the new commit, and the branch waits for it: `settle` ends that;
- git itself was killed, between its first file and its last: that stays as it is, and is told.
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
from rametd.git.landing import by, identity
from rametd.git.obstacles import additions, named, refuse_repositories, uncommitted
from rametd.git.process import Completed, failed
from rametd.git.repository import head_of, open_repository, peel
from rametd.git.scratch import without_files
from rametd.git.snapshot import current_tree
from rametd.git.submodules import follow_submodules
from rametd.git.underway import busy_with, ending_words

_REFLOG: Final = "ramet: sync"
_REBASE: Final = (
    *("-c", "rebase.backend=merge"),  # the other one applies patches to files
    # What moves with it by configuration would be other branches, the person's and those of other sessions.
    *("-c", "rebase.updateRefs=false", "-c", "rebase.autoSquash=false"),
)


@dataclass(frozen=True, slots=True)
class Synced:
    """``commits`` were brought in. With ``conflicts`` (paths) everything is as it was before; ``warnings`` name submodules that stay behind."""

    old: str
    new: str
    commits: int
    conflicts: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


class CutOff(StrEnum):
    """What a sync that was cut off has left."""

    NOTHING = "nothing"
    DONE = "done"
    HALF = "half"
    """Some files are those of the new commit, and the branch is where it was."""
    DETACHED = "detached"
    """The branch is not checked out, and somebody has gone on from there."""


async def sync(
    git: GitContext,
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
    """See `Git.syncing.sync`."""
    git_dir = await git.verified(worktree, None)
    there = (f"--git-dir={git_dir}", f"--work-tree={worktree}")
    if busy := await git.compute(busy_with, git_dir):  # first, for a rebase has no branch checked out
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
    # Git will look again: this is for the words, and so that nothing is kept for what will be refused.
    await _refuse_overwriting(git, worktree, there, coming)
    if before_changing is not None:
        await before_changing(Synced(old, new, missing))
    await git.make_durable(git_dir)
    async with _alone(git, git_dir) as lock:
        words = ("checkout", "--quiet", "--no-overwrite-ignore", "--no-recurse-submodules", "--detach", new)
        done = await git.process.run(worktree, *there, *words, environment={"GIT_REFLOG_ACTION": _REFLOG}, lock=lock)
        if done.returncode != 0:
            raise _refused(done, words)
        if branch is not None:
            await _take_along(git, worktree, there, branch, old, new)
    return Synced(old, new, missing, warnings=await follow_submodules(git, source, worktree, old, new))


async def _take_along(git: GitContext, worktree: Path, there: tuple[str, ...], branch: str, old: str, new: str) -> None:
    """The branch, to where its files and a detached HEAD are by now."""
    ref = f"refs/heads/{branch}"
    done = await git.process.run(worktree, *there, "update-ref", "-m", _REFLOG, ref, new, old)
    if done.returncode != 0:
        # Somebody committed to it in this moment. Git takes back what it has just written, and refuses where that was changed since.
        await git.process.write(worktree, *there, "checkout", "--quiet", "--no-overwrite-ignore", branch, "--")
        raise WorktreeChangedError(
            f"{branch} was moved in the same moment ({done.words})", hint="sync again", worktree=str(worktree)
        )
    await git.process.write(worktree, *there, "symbolic-ref", "-m", _REFLOG, "HEAD", ref)


async def settle(
    git: GitContext, worktree: Path, branch: str | None, old: str, new: str, source: Path | None = None
) -> CutOff:
    """See `Git.syncing.settle`."""
    left = await _settle(git, worktree, branch, old, new)
    if left == CutOff.DONE:
        await follow_submodules(git, source, worktree, old, new)
    return left


async def _settle(git: GitContext, worktree: Path, branch: str | None, old: str, new: str) -> CutOff:
    git_dir = await git.verified(worktree, None)
    there = (f"--git-dir={git_dir}", f"--work-tree={worktree}")

    def where() -> tuple[str | None, bool, str | None]:
        """The branch that is checked out, whether it has the new commit, and where HEAD is."""
        repository = open_repository(git_dir)
        head = head_of(repository)
        has = head.commit is not None and (head.commit == new or repository.descendant_of(head.commit, new))
        return head.branch, has, head.commit

    async with _alone(git, git_dir):  # a git that has outlived its daemon may be at it
        on, has, head = await git.compute(where)
        if branch is not None and on is None and head == new:
            tip = await git.compute(peel, open_repository(git_dir), f"refs/heads/{branch}")
            if tip not in {old, new}:
                return CutOff.DETACHED
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
async def _alone(git: GitContext, git_dir: Path) -> AsyncIterator[int]:
    """The worktree's lock, which git inherits: whoever comes after a daemon that was killed waits for the git that it has left behind, however long."""
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
    """The merge of a commit, made among objects, or the paths in conflict; where nothing was done since, the commit itself."""
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
    """The last of the commits since ``commit``, made again on top of it, or the paths in conflict."""
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
            hint="what comes in has files of its own there: move them out of the worktree, then sync again",
            worktree=str(worktree),
        )


def _refused(done: Completed, words: tuple[str, ...]) -> GitFailedError | WorktreeChangedError:
    """Git names what is in the way, indented by a tab."""
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
            f"{head.branch} has no commit any more", hint="look at its worktree: somebody has deleted the branch"
        )
    return head.commit


def _names(output: bytes) -> tuple[str, ...]:
    return tuple(dict.fromkeys(os.fsdecode(name) for name in output.split(b"\0") if name))


class Syncing:
    """Merges and rebases of a base into a worktree. Every method may raise what those of `Git` raise."""

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
        """Bring the commits of ``commit`` into the branch checked out, by a merge or by a rebase onto it; where that conflicts nothing was touched.
        Submodules follow the commits that it brings, from what ``source``, the person's checkout, has of them.
        Commits are made in the name that the person has in ``environment``.
        ``before_changing`` is awaited with what it comes to, once it is known that it will succeed and before git writes a file.

        Raises WorktreeChangedError in the middle of a merge or the like, and where uncommitted changes or untracked or ignored files are in the way.
        """
        return await sync(
            self._git,
            worktree,
            branch,
            commit,
            rebase=rebase,
            message=message,
            source=source,
            environment=environment,
            before_changing=before_changing,
        )

    async def settle(
        self, worktree: Path, branch: str | None, old: str, new: str, source: Path | None = None
    ) -> CutOff:
        """End a sync from ``old`` to ``new`` that was cut off, where its files are complete; what else it has left stays as it is.

        Waits for a git of it that is still writing.
        """
        return await settle(self._git, worktree, branch, old, new, source)
