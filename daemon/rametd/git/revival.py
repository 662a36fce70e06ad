"""A worktree brought back from what was kept of it (`trash`): branch, files, what was staged, what was checked out."""

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pygit2

from rametd.domain.errors import RefNotFoundError
from rametd.git import worktrees
from rametd.git.context import GitContext
from rametd.git.locks import DIRECTORY
from rametd.git.registrations import existing_git_dir, verify_worktree
from rametd.git.repository import RepositoryInfo, open_repository
from rametd.git.trash import read_ref, restore_files


@dataclass(frozen=True, slots=True)
class Kept:
    """What a commit under ``refs/ramet/trash/`` or ``refs/ramet/archive/`` keeps; commits are hashes, "" where there is none.

    ``head``: what was checked out where that was not the branch; ``on``: its branch, "" when it was detached. ``changed``: paths that
    were not as in the commit that was checked out, untracked ones included. ``time``: seconds since the epoch.
    """

    ref: str
    commit: str
    branch_commit: str
    head: str
    on: str
    index: str
    begun: str
    nested: tuple[tuple[str, str], ...]
    changed: tuple[str, ...]
    time: int
    earlier: str = ""
    """What was kept while the files were there, where the branch went on after that, in what an earlier release kept."""
    later: str = ""
    """Where the branch went on to after that."""
    checkpoint: str = ""
    """Has files of a worktree that somebody had deleted, where the branch is not as it was then."""

    @property
    def start(self) -> str:
        """Where the worktree stood."""
        return self.head or self.branch_commit


def read_kept(repo: RepositoryInfo, ref: str) -> Kept | None:
    """None when there is no such ref. Blocks."""
    commit_id = read_ref(repo, ref)
    if commit_id is None:
        return None
    repository = open_repository(repo.common_dir)
    commit = repository[commit_id].peel(pygit2.Commit)
    words: dict[str, str] = {}
    nested: list[tuple[str, str]] = []
    for line in commit.message.splitlines()[2:]:
        key, _, value = line.partition(" ")
        if key == "nested":
            made, _, place = value.partition(" ")
            nested.append((made, place))
        else:
            words[key] = value
    # An earlier release wrote no line for the branch: its tip is the first parent.
    first = str(commit.parent_ids[0]) if commit.parent_ids else ""
    branch_commit = words.get("branch", "" if "head" in words else first)
    start = words.get("head") or branch_commit
    changed: tuple[str, ...] = ()
    if start:
        diff = repository[start].peel(pygit2.Tree).diff_to_tree(commit.tree)
        changed = tuple(sorted(delta.new_file.path for delta in diff.deltas))
    return Kept(
        ref=ref,
        commit=commit_id,
        branch_commit=branch_commit,
        head=words.get("head", ""),
        on=words.get("on", ""),
        index=words.get("index", ""),
        begun=words.get("begun", ""),
        nested=tuple(nested),
        changed=changed,
        time=commit.commit_time,
        earlier=words.get("earlier", ""),
        later=words.get("later", ""),
        checkpoint=words.get("checkpoint", ""),
    )


async def revive(
    git: GitContext, repo: RepositoryInfo, path: Path, kept: Kept, branch: str, commit: str, *, new_branch: bool
) -> tuple[str, ...]:
    """See `Git.revive`."""
    warnings = [*await worktrees.create_worktree(git, repo, path, branch, commit, new_branch=new_branch)]
    git_dir = await git.compute(verify_worktree, path, None)
    there = (f"--git-dir={git_dir}", f"--work-tree={path}")
    if kept.head:
        warnings += await _check_out(git, path, there, kept)
    start = kept.start or commit
    if await _differs(git, repo, start, kept.commit) and (kept.head or kept.changed):
        await restore_files(git, path, git_dir, kept.commit)
    if kept.index:
        # By `restore`, which knows of sparse checkouts, rather than by reading a tree into the index.
        await git.process.write(path, *there, "restore", f"--source={kept.index}", "--staged", "--", ":/")
    for made, place in kept.nested:
        warnings += await _restore_nested(git, repo, path, made, place)
    if kept.begun:
        warnings.append(f"the {kept.begun} that was under way is not any more: its files are as they were")
    if kept.later:
        name = f"git branch NAME {kept.later[:12]}"
        warnings.append(
            f"its branch had gone on to {kept.later[:12]} after its files were kept: `{name}` makes a branch of that"
        )
    if kept.earlier:
        warnings.append(f"the branch went on after its files were kept: they are in {kept.earlier[:12]}")
    return tuple(warnings)


async def _check_out(git: GitContext, path: Path, there: tuple[str, str], kept: Kept) -> list[str]:
    """What was checked out instead of the branch: the tree was just made, so that nothing in it is overwritten."""
    if kept.on:
        done = await git.process.run(path, *there, "checkout", "--quiet", "--no-guess", kept.on, "--")
        now = (await git.process.run(path, *there, "rev-parse", "--verify", "--quiet", "HEAD")).stdout.decode().strip()
        if done.returncode == 0 and now == kept.head:
            return []
    await git.process.write(path, *there, "checkout", "--quiet", "--detach", kept.head, "--")
    if kept.on:
        return [f"{kept.on}, which it had checked out, is not as it was: HEAD is detached at {kept.head[:12]}"]
    return []


async def _differs(git: GitContext, repo: RepositoryInfo, one: str, other: str) -> bool:
    def trees() -> bool:
        repository = open_repository(repo.common_dir)
        try:
            return repository[one].peel(pygit2.Tree).id != repository[other].peel(pygit2.Tree).id
        except KeyError as error:
            raise RefNotFoundError(f"commit {error} is not there any more", hint="git fsck tells more") from error

    return await git.compute(trees)


async def _restore_nested(git: GitContext, repo: RepositoryInfo, worktree: Path, commit: str, place: str) -> list[str]:
    """The files of a repository inside the worktree, over those of a submodule that was filled again."""
    target = worktree / place
    await git.compute(lambda: target.mkdir(parents=True, exist_ok=True))
    there = (f"--git-dir={repo.common_dir}", f"--work-tree={target}")
    scratch = await git.compute(tempfile.mkdtemp, prefix="index-", dir=repo.common_dir / DIRECTORY)
    try:
        environment = {"GIT_INDEX_FILE": f"{scratch}/index"}
        await git.process.write(target, *there, "read-tree", commit, environment=environment)
        await git.process.write(target, *there, "checkout-index", "--all", "--force", environment=environment)
    finally:
        await git.compute(shutil.rmtree, scratch)
    own = await git.compute(lambda: bool(open_repository(repo.common_dir)[commit].peel(pygit2.Commit).parent_ids))
    if await git.compute(existing_git_dir, target) is not None:
        return [f"{place} had commits that were never pushed: {commit[:12]} has them"] if own else []
    words = f"its commits are in {commit[:12]}" if own else "its history is not"
    return [f"{place} was a repository of its own: its files are back, {words}"]
