"""Write a snapshot's files to a worktree, under one of two policies: overwrite nothing foreign
(`apply_tree`), or first capture the present files (`restore_files`). Never uses the person's stash.
Only `move_back` moves HEAD."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rametd.domain.errors import GitFailedError, WorktreeChangedError
from rametd.git.context import GitContext
from rametd.git.file_trees import private_index
from rametd.git.names import parents
from rametd.git.obstacles import additions, in_the_way, refuse_repositories
from rametd.git.process import at
from rametd.git.registrations import registrations
from rametd.git.repository import head_of, open_repository
from rametd.git.scratch import change_files
from rametd.git.underway import busy_with
from rametd.git.unread import add_all, is_unborn

_RETRIES_S: Final = (0.1, 0.3, 1.0, 3.0)
"""Seconds before each retry. Git refuses if a file has appeared or changed since the check: a
person works there, or a git process of a killed daemon still runs. Each retry first captures the
present files."""


async def apply_tree(git: GitContext, worktree: Path, files: str) -> None:
    """Write the tree ``files`` to a new worktree; HEAD and the index stay.

    Raise GitFailedError, with nothing written, if a file differs from HEAD or an ignored one is in
    the way.
    """
    git_dir = await git.verified(worktree, None)
    async with git.worktree_lock(worktree), private_index(git, git_dir) as index:
        there = at(git_dir, worktree)
        await git.process.run(
            worktree, *there, "update-index", "-q", "--refresh", environment={"GIT_INDEX_FILE": str(index)}
        )
        now = (await git.process.read(worktree, *there, "rev-parse", "HEAD^{tree}")).decode().strip()
        if now != files:
            await refuse_failing_filters(git, worktree, git_dir, index.parent, now, files)
            await change_files(git, worktree, git_dir, index, now, files)


async def restore_files(
    git: GitContext, worktree: Path, target: str, before_overwriting: Callable[[str], Awaitable[None]]
) -> str:
    """Write the tree ``target`` over the files of a worktree. Ignored files, HEAD and the index
    stay. Return the tree of the former files.

    The function awaits ``before_overwriting`` with that tree, which includes ignored files in the
    way; the caller must capture it there. Raise WorktreeChangedError during a merge or the like,
    and GitFailedError, with nothing written, if a file changes meanwhile or a filter fails.
    """
    git_dir = await git.verified(worktree, None)
    if busy := await git.compute(busy_with, git_dir):
        # The next commit would end the merge, with the restored files and both parents.
        raise WorktreeChangedError(
            f"{worktree} is in the middle of {busy}",
            hint="finish or abort it there (`git status` shows the commands), then rewind again",
            worktree=str(worktree),
        )
    for pause in _RETRIES_S:
        try:
            return await _bring_back(git, worktree, git_dir, target, before_overwriting)
        except FilterFailedError:
            raise
        except GitFailedError:
            await asyncio.sleep(pause)
    return await _bring_back(git, worktree, git_dir, target, before_overwriting)


async def _bring_back(
    git: GitContext, worktree: Path, git_dir: Path, target: str, before_overwriting: Callable[[str], Awaitable[None]]
) -> str:
    await git.verified(worktree, None)
    there = at(git_dir, worktree)
    async with git.worktree_lock(worktree), private_index(git, git_dir) as index:
        environment = {"GIT_INDEX_FILE": str(index)}

        async def write(*arguments: str, stdin: bytes | None = None) -> str:
            output = await git.process.write(worktree, *there, *arguments, environment=environment, stdin=stdin)
            return output.decode().strip()

        skipped = await add_all(git, worktree, git_dir, index)
        if unread := [words for words in skipped if not is_unborn(words)]:
            raise GitFailedError("; ".join(unread), hint="make it readable, or have git ignore it")
        now = await write("write-tree", "--missing-ok")
        wanted = await additions(git, worktree, there, "diff-tree", now, target)
        await refuse_repositories(git, worktree, wanted)
        await refuse_failing_filters(git, worktree, git_dir, index.parent, now, target)
        # Ignored files in the way: only this snapshot has them.
        ignored = await git.compute(in_the_way, worktree, wanted)
        if ignored:
            paths = b"".join(os.fsencode(path) + b"\0" for path in ignored)
            # The index points at a nested commit whose repository is gone: git adds no file below
            # that path.
            above = {os.fsencode(parent) for path in ignored for parent in parents(path)}
            links = b"".join(parent + b"\0" for parent in sorted(above))
            await write("update-index", "--force-remove", "-z", "--stdin", stdin=links)
            add = ("add", "--force", "--sparse", "--pathspec-from-file=-", "--pathspec-file-nul")
            await write("--literal-pathspecs", *add, stdin=paths)
            now = await write("write-tree", "--missing-ok")
        await before_overwriting(now)
        await git.make_durable(git_dir)
        await change_files(git, worktree, git_dir, index, now, target)
    return now


class FilterFailedError(GitFailedError):
    """Raised when a required filter cannot write a file of the snapshot, before anything in the
    worktree is touched."""


async def refuse_failing_filters(
    git: GitContext, worktree: Path, git_dir: Path, scratch: Path, now: str, target: str
) -> None:
    """Raise FilterFailedError if a filter fails for a file to write.

    Git deletes files before it writes others: a filter that fails in between would leave a
    half-written worktree. Therefore write the filtered files to ``scratch`` first.
    """
    there = at(git_dir, worktree)
    configured = await git.process.run(worktree, *there, "config", "--get-regexp", r"^filter\..*\.(smudge|process)$")
    if not configured.stdout:
        return
    beside = scratch / "filtered"
    await git.compute(lambda: beside.mkdir(exist_ok=True))
    ends = at(git_dir, beside)
    environment = {"GIT_INDEX_FILE": str(scratch / "filtered-index")}
    shown = ("diff-tree", "-r", "-z", "--name-only", "--no-renames", "--diff-filter=AMT", now, target)
    paths = await git.process.read(worktree, *there, *shown)
    # In an empty directory git reads the attributes from the index: those of the snapshot.
    await git.process.write(beside, *ends, "read-tree", target, environment=environment)
    asked = ("check-attr", "-z", "--cached", "--stdin", "filter")
    output = await git.process.read(beside, *ends, *asked, stdin=paths, environment=environment)
    fields = output.split(b"\0")
    filtered = [
        path for path, value in zip(fields[::3], fields[2::3], strict=False) if value not in {b"unspecified", b"unset"}
    ]
    if not filtered:
        return
    stdin = b"".join(path + b"\0" for path in filtered)
    done = await git.process.run(beside, *ends, "checkout-index", "-z", "--stdin", stdin=stdin, environment=environment)
    if done.returncode != 0:
        raise FilterFailedError(
            done.words, hint="nothing was changed; fix the filter (`git config --get-regexp filter`)"
        )


@dataclass(frozen=True, slots=True)
class Moved:
    """Whether HEAD is at the commit now. ``warning`` says why it is not, else ""."""

    done: bool
    warning: str = ""


async def move_back(
    git: GitContext, worktree: Path, commit: str, *, own: str | None, tip: str, leave: bool = False, staged: str = ""
) -> Moved:
    """Move ``own``, the checked-out branch (or a detached HEAD), back to an earlier commit of its
    line, and set the index to the tree ``staged`` or that of the commit. ``tip`` is the present
    commit, which has been captured.

    A detached HEAD moves to any commit. With ``leave`` the branch does too, unless another worktree
    has it checked out. Otherwise change nothing, nor if another branch is checked out or this one
    has newer commits.
    """
    git_dir = await git.verified(worktree, None)
    there = at(git_dir, worktree)
    name = own or "HEAD"

    def where() -> tuple[str | None, str | None, str]:
        """Return the checked-out branch, its commit, and why it cannot move."""
        repository = open_repository(git_dir)
        head = head_of(repository)
        if head.commit is None:
            return head.branch, None, f"{head.branch or name} has no commit any more"
        if head.commit == commit:
            return head.branch, commit, ""
        if head.branch not in {None, own}:  # it may be the person's
            return head.branch, head.commit, f"{head.branch} is checked out there, and stays where it is"
        if head.commit != tip:  # no snapshot has the newer commits
            return head.branch, head.commit, f"{name} stays where it is: it has newer commits"
        # A detached HEAD belongs to this worktree only.
        if head.branch is None or repository.descendant_of(head.commit, commit):
            return head.branch, head.commit, ""
        if not leave or _elsewhere(git_dir, head.branch):
            line = f"{commit[:12]} and the present HEAD have no common line of commits"
            return head.branch, head.commit, f"{name} stays where it is: {line}"
        return head.branch, head.commit, ""

    branch, old, why = await git.compute(where)
    if old is None or why:
        return Moved(False, why)
    ref: Sequence[str] = ("HEAD", "--no-deref") if branch is None else (f"refs/heads/{branch}",)
    if old != commit:
        await git.process.write(worktree, *there, "update-ref", "-m", "ramet: rewind", *ref[1:], ref[0], commit, old)
    # Move the index with HEAD, so that `git status` shows the checkpoint's changes as changes, and
    # nothing else.
    await git.process.write(worktree, *there, "read-tree", staged or commit)
    await git.process.run(worktree, *there, "update-index", "-q", "--refresh")
    if branch is None and own:
        return Moved(True, f"HEAD is on no branch, and is at {commit[:12]} now: {own} stays where it is")
    return Moved(True)


def _elsewhere(git_dir: Path, branch: str | None) -> bool:
    """Return whether another worktree has the branch checked out too, as `git worktree add --force`
    allows."""
    common = git_dir.parent.parent if git_dir.parent.name == "worktrees" else git_dir
    linked = any(entry.branch == branch and entry.admin_dir != git_dir for entry in registrations(common))
    return linked or (common != git_dir and head_of(open_repository(common)).branch == branch)
