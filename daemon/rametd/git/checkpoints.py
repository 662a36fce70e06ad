"""A worktree kept as it is, and brought back to what was kept. The user's stash is never used, and HEAD moves only back along its own branch,
or, on a branch of ours, to what was kept of it before it was rebased."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pygit2

from rametd.domain.errors import GitFailedError, WorktreeChangedError
from rametd.git import checkpointed
from rametd.git.checkpointed import Inside
from rametd.git.context import GitContext
from rametd.git.inventory import refs_below
from rametd.git.obstacles import additions, in_the_way, refuse_repositories
from rametd.git.registrations import registrations, verify_worktree
from rametd.git.repository import RepositoryInfo, common_dir, head_of, open_repository
from rametd.git.scratch import change_files
from rametd.git.snapshot import current_tree, private_index, write_commit
from rametd.git.targets import under_way
from rametd.git.unread import add_all, is_unborn

PREFIX: Final = "refs/ramet/checkpoints/"
_STAGED: Final = "what was staged at "

_AGAIN_S: Final = (0.1, 0.3, 1.0, 3.0)
"""Git refuses where a file came or changed since it was looked at: somebody works there, or the git of a daemon that was killed in the middle of
the same still does. Each time what is there by then is kept first."""


@dataclass(frozen=True, slots=True)
class KeptTree:
    """A commit that holds the files of a worktree. ``head`` is its first parent, "" on an unborn branch; ``skipped`` are git's words for what it
    could not read. ``staged`` is what the index holds, a tree that its second parent is a commit of; "" where that is what HEAD holds. ``inside``
    tells of repositories inside (`checkpointed`), the kept ones among which are parents too."""

    commit: str
    tree: str
    head: str
    skipped: tuple[str, ...] = ()
    staged: str = ""
    inside: tuple[Inside, ...] = ()


async def keep(
    git: GitContext, worktree: Path, ref: str, message: str, tree: str | None = None, *, with_index: bool = False
) -> KeptTree:
    """See `Git.keep`."""
    git_dir = await git.compute(verify_worktree, worktree, None)
    skipped: tuple[str, ...] = ()
    plain = False
    if tree is None:
        written = await current_tree(git, worktree, git_dir)
        tree, skipped, plain = written.tree, written.skipped, written.plain
    inside: tuple[Inside, ...] = ()
    if not plain:
        inside, skipped = await checkpointed.keep(git, worktree, git_dir, tree, skipped)
    index = await _index_tree(git, worktree, git_dir) if with_index else None
    files = tree

    def commit() -> KeptTree:
        repository = open_repository(git_dir)
        head = head_of(repository).commit
        parents = [head] if head is not None else []
        staged = ""
        if head is not None and index is not None and index != str(repository[head].peel(pygit2.Tree).id):
            staged = index
            parents.append(write_commit(repository, index, f"{_STAGED}{message}", parents))
        parents += dict.fromkeys(each.commit for each in inside if each.kept)
        made = write_commit(repository, files, checkpointed.noted(message, inside), parents)
        if ref not in repository.references:
            # Nobody but us writes this ref, one at a time: the lock is of a daemon that was killed while it did. Once the ref is there, git may
            # hold one to pack it.
            (common_dir(git_dir) / f"{ref}.lock").unlink(missing_ok=True)
        repository.references.create(ref, pygit2.Oid(hex=made), force=True)
        return KeptTree(made, files, head or "", skipped, staged, inside)

    return await git.compute(commit)


def staged_at(repo: RepositoryInfo, commit: str) -> str:
    """See `Git.staged_at`. Blocks."""
    return _staged(open_repository(repo.common_dir)[commit].peel(pygit2.Commit))


def _staged(commit: pygit2.Commit) -> str:
    found = next((parent for parent in commit.parents[1:2] if parent.message.startswith(_STAGED)), None)
    return str(found.tree_id) if found is not None else ""


async def _index_tree(git: GitContext, worktree: Path, git_dir: Path) -> str:
    """What is staged, as a tree; of paths in conflict it has none: what the index has of those is in commits."""
    there = (f"--git-dir={git_dir}", f"--work-tree={worktree}")
    async with private_index(git, git_dir) as index:  # `write-tree` writes into the index what it found out about trees
        environment = {"GIT_INDEX_FILE": str(index)}
        listing = ("diff", "--name-only", "--diff-filter=U", "-z")
        unmerged = await git.process.read(worktree, *there, *listing, environment=environment)
        if unmerged:
            await git.process.write(
                worktree,
                *there,
                *("update-index", "-z", "--force-remove", "--stdin"),
                stdin=unmerged,
                environment=environment,
            )
        tree = await git.process.write(worktree, *there, "write-tree", "--missing-ok", environment=environment)
    return tree.decode().strip()


async def bring_back(
    git: GitContext, worktree: Path, target: str, before_overwriting: Callable[[str], Awaitable[None]]
) -> str:
    """See `Git.bring_back`."""
    git_dir = await git.compute(verify_worktree, worktree, None)
    if busy := await git.compute(under_way, git_dir):
        # Git would go on from there: the next commit would be its end, with the files of then and both its parents.
        raise WorktreeChangedError(
            f"{worktree} is in the middle of {busy}",
            hint="finish it there or take it back (`git status` tells how), then rewind again",
            worktree=str(worktree),
        )
    for pause in _AGAIN_S:
        try:
            return await _bring_back(git, worktree, target, before_overwriting)
        except GitFailedError:
            await asyncio.sleep(pause)
    return await _bring_back(git, worktree, target, before_overwriting)


async def _bring_back(
    git: GitContext, worktree: Path, target: str, before_overwriting: Callable[[str], Awaitable[None]]
) -> str:
    git_dir = await git.compute(verify_worktree, worktree, None)
    there = (f"--git-dir={git_dir}", f"--work-tree={worktree}")
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
        # Ignored files in the places of files to come: nobody but us would keep them.
        ignored = await git.compute(in_the_way, worktree, wanted)
        if ignored:
            paths = b"".join(os.fsencode(path) + b"\0" for path in ignored)
            add = ("add", "--force", "--sparse", "--pathspec-from-file=-", "--pathspec-file-nul")
            await write("--literal-pathspecs", *add, stdin=paths)
            now = await write("write-tree", "--missing-ok")
        await before_overwriting(now)
        await git.make_durable(git_dir)
        await change_files(git, worktree, git_dir, index, now, target)
    return now


@dataclass(frozen=True, slots=True)
class Moved:
    """Whether what is checked out stands there now; ``told`` says in words what stays, "" where that is nothing."""

    done: bool
    told: str = ""


async def move_back(
    git: GitContext, worktree: Path, commit: str, *, own: str | None, tip: str, leave: bool = False, staged: str = ""
) -> Moved:
    """See `Git.move_back`."""
    git_dir = await git.compute(verify_worktree, worktree, None)
    there = (f"--git-dir={git_dir}", f"--work-tree={worktree}")
    name = own or "HEAD"

    def where() -> tuple[str | None, str | None, str]:
        """What is checked out, where that stands, and why it stays there."""
        repository = open_repository(git_dir)
        head = head_of(repository)
        if head.commit is None:
            return head.branch, None, f"{head.branch or name} has no commit any more"
        if head.commit == commit:
            return head.branch, commit, ""
        if head.branch not in {None, own}:  # it may be the person's
            return head.branch, head.commit, f"{head.branch} is checked out there, and stays where it is"
        if head.commit != tip:  # what was committed since that was kept is in no checkpoint
            return head.branch, head.commit, f"{name} stays where it is: somebody has committed since"
        # A HEAD that is on no branch is nobody else's.
        if head.branch is None or repository.descendant_of(head.commit, commit):
            return head.branch, head.commit, ""
        if not leave or _elsewhere(git_dir, head.branch):
            line = f"{commit[:12]} is of another line of commits than what is checked out"
            return head.branch, head.commit, f"{name} stays where it is: {line}"
        return head.branch, head.commit, ""

    branch, old, why = await git.compute(where)
    if old is None or why:
        return Moved(False, why)
    ref = ("HEAD", "--no-deref") if branch is None else (f"refs/heads/{branch}",)
    if old != commit:
        await git.process.write(worktree, *there, "update-ref", "-m", "ramet: rewind", *ref[1:], ref[0], commit, old)
    # The index belongs to what is checked out: with it, status shows the checkpoint's changes as changes, and nothing else.
    await git.process.write(worktree, *there, "read-tree", staged or commit)
    await git.process.run(worktree, *there, "update-index", "-q", "--refresh")
    if branch is None and own:
        return Moved(True, f"HEAD is on no branch, and is at {commit[:12]} now: {own} stays where it is")
    return Moved(True)


def _elsewhere(git_dir: Path, branch: str | None) -> bool:
    """Whether another worktree has the branch checked out too, as `git worktree add --force` allows."""
    common = git_dir.parent.parent if git_dir.parent.name == "worktrees" else git_dir
    linked = any(entry.branch == branch and entry.admin_dir != git_dir for entry in registrations(common))
    return linked or (common != git_dir and head_of(open_repository(common)).branch == branch)


@dataclass(frozen=True, slots=True)
class KeptRef:
    """A checkpoint as its ref tells of it."""

    number: int
    ref: str
    kept: KeptTree
    create_time: float
    message: str


async def kept_below(git: GitContext, repo: RepositoryInfo, folder: str) -> tuple[KeptRef, ...]:
    """See `Git.kept_below`."""

    def look() -> tuple[KeptRef, ...]:
        repository = open_repository(repo.common_dir)
        found = []
        for ref, name in refs.items():
            number, commit = ref.rpartition("/")[2], repository[name].peel(pygit2.Commit)
            if number.isascii() and number.isdigit():
                inside = checkpointed.of_message(commit.message)
                below = {each.commit for each in inside if each.kept}
                head = next((str(oid) for oid in commit.parent_ids if str(oid) not in below), "")
                kept = KeptTree(str(commit.id), str(commit.tree_id), head, (), _staged(commit), inside)
                found.append(KeptRef(int(number), ref, kept, float(commit.commit_time), commit.message))
        return tuple(sorted(found, key=lambda each: each.number))

    def begins() -> bool:
        return f"{folder}/1" in open_repository(repo.common_dir).references

    if not await git.compute(
        begins
    ):  # as for every session at its start, which is not to wait for a listing of all refs
        return ()
    refs = await refs_below(git, repo, (folder,))
    return await git.compute(look)
