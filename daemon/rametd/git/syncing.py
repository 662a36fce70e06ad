"""Bringing a base's commits into the branch of a worktree: by merge or rebase, or, where that conflicts, not at all."""

import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rametd.domain.errors import GitFailedError, WorktreeChangedError
from rametd.git.context import GitContext
from rametd.git.landing import by, identity
from rametd.git.obstacles import additions, named, refuse_repositories, uncommitted
from rametd.git.process import Completed, failed
from rametd.git.registrations import verify_worktree
from rametd.git.repository import head_of, open_repository

UNDER_WAY = {"MERGE_HEAD": "merge", "rebase-merge": "rebase", "rebase-apply": "rebase"}
"""What git leaves in a worktree's directory while it is in the middle of something, and what that is."""


@dataclass(frozen=True, slots=True)
class Synced:
    """``commits`` were brought in. With ``conflicts`` (paths) everything is as it was before."""

    old: str
    new: str
    commits: int
    conflicts: tuple[str, ...] = ()


async def sync(
    git: GitContext,
    worktree: Path,
    branch: str | None,
    commit: str,
    *,
    rebase: bool,
    message: str,
    before_changing: Callable[[], Awaitable[None]] | None = None,
) -> Synced:
    """See `Git.sync`."""
    git_dir = await git.compute(verify_worktree, worktree, branch)
    there = (f"--git-dir={git_dir}", f"--work-tree={worktree}")
    if (busy := await git.compute(_under_way, git_dir)) is not None:
        raise WorktreeChangedError(
            f"{worktree} is in the middle of a {busy}",
            hint=f"finish it there, or git {busy} --abort",
            worktree=str(worktree),
        )
    old = await git.compute(_head, git_dir)
    missing = await git.process.read(worktree, *there, "rev-list", "--count", f"{old}..{commit}")
    if not int(missing):
        return Synced(old, old, 0)
    if not rebase:
        # Found out without touching anything: the working tree is only written where it will succeed.
        trial = await git.process.run(
            worktree, *there, "merge-tree", "--write-tree", "--name-only", "--no-messages", "-z", old, commit
        )
        if trial.returncode == 1:
            return Synced(old, old, 0, _names(trial.stdout.partition(b"\0")[2]))
        if trial.returncode:
            raise failed(trial, ("merge",))
        coming = await additions(git, worktree, there, "diff-tree", old, os.fsdecode(trial.stdout.partition(b"\0")[0]))
    else:
        coming = await additions(git, worktree, there, "diff-tree", old, commit)
        # Its own commits come again one after the other: what one of them adds and a later one removes comes too.
        own = ("log", "--format=", "--no-merges", "--no-show-signature", f"{commit}..{old}", "--")
        coming |= await additions(git, worktree, there, *own)
    await _refuse_overwriting(git, worktree, there, coming)
    if before_changing is not None:
        await before_changing()
    who = by(None, await identity(git, worktree))
    words = (
        # What moves with it by configuration would be other branches, the person's and those of other sessions.
        ("-c", "rebase.updateRefs=false", "-c", "rebase.autoSquash=false", "rebase", "--no-autostash", commit)
        if rebase
        else ("merge", "--no-edit", "--no-autostash", "-m", message, commit)
    )
    done = await git.process.run(worktree, *there, *words, environment=who)
    if done.returncode == 0:
        return Synced(old, await git.compute(_head, git_dir), int(missing))
    unmerged = await git.process.read(worktree, *there, "diff", "--name-only", "--diff-filter=U", "-z")
    await abort(git, worktree, commit)
    if not unmerged:
        changed = await git.process.read(worktree, *there, "diff", "--name-only", "-z", "HEAD")
        raise _refused(done, words, _names(changed))
    return Synced(old, old, 0, _names(unmerged))


async def abort(git: GitContext, worktree: Path, commit: str) -> None:
    """See `Git.abort_sync`."""
    git_dir = await git.compute(verify_worktree, worktree, None)
    if (busy := await git.compute(_under_way, git_dir)) is not None and await git.compute(_brings_in, git_dir, commit):
        there = (f"--git-dir={git_dir}", f"--work-tree={worktree}")
        await git.process.write(worktree, *there, busy, "--abort")


async def _refuse_overwriting(git: GitContext, worktree: Path, there: tuple[str, ...], coming: dict[str, str]) -> None:
    """Git would overwrite ignored files, which nobody keeps, without a word."""
    await refuse_repositories(git, worktree, coming)
    if found := await uncommitted(git, worktree, there, coming):
        raise WorktreeChangedError(
            f"untracked or ignored files are in the way: {named(found)}",
            hint="what comes in has files of its own there: move them out of the worktree, then sync again",
            worktree=str(worktree),
        )


def _refused(
    done: Completed, words: tuple[str, ...], changed: tuple[str, ...]
) -> GitFailedError | WorktreeChangedError:
    """``changed`` are files with uncommitted changes; git names those in the way of a merge, and none that are in the way of a rebase."""
    # Indented by a tab are names of what is changed in the tree; by two spaces, and all in one line, of what is staged.
    listed = [
        line.strip() for line in done.stderr.decode(errors="replace").splitlines() if line.startswith(("\t", "  "))
    ]
    if (
        listed
        or b"would be overwritten" in done.stderr
        or b"unstaged changes" in done.stderr
        or b"uncommitted changes" in done.stderr
    ):
        names = listed or list(changed)
        what = f": {named(names)}" if names else ""
        return WorktreeChangedError(
            f"uncommitted changes are in the way{what}",
            hint="commit them in the worktree, or have the agent commit them, then sync again",
        )
    return failed(done, words)


def _under_way(git_dir: Path) -> str | None:
    return next((what for name, what in UNDER_WAY.items() if (git_dir / name).exists()), None)


def _brings_in(git_dir: Path, commit: str) -> bool:
    """Whether what is under way brings in that commit; a merge of the agent's or the person's is theirs to end."""
    for name in ("MERGE_HEAD", "rebase-merge/onto", "rebase-apply/onto"):
        with suppress(FileNotFoundError, NotADirectoryError):
            return (git_dir / name).read_text().split() == [commit]
    return False


def _head(git_dir: Path) -> str:
    head = head_of(open_repository(git_dir))
    if head.commit is None:
        raise WorktreeChangedError(
            f"{head.branch} has no commit any more", hint="look at its worktree: somebody has deleted the branch"
        )
    return head.commit


def _names(output: bytes) -> tuple[str, ...]:
    return tuple(dict.fromkeys(os.fsdecode(name) for name in output.split(b"\0") if name))
