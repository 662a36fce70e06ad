"""A worktree brought back from what was kept of it (`kept`): branch, files, what was staged, what was checked out, what was inside it."""

from collections.abc import Sequence
from pathlib import Path

import pygit2

from rametd.domain.errors import BranchTakenError, GitFailedError, RefNotFoundError, WorktreeChangedError
from rametd.git import gitdirs, nested, removal, worktrees
from rametd.git.aside import put_back
from rametd.git.context import GitContext
from rametd.git.kept import Kept, kept_by
from rametd.git.registrations import existing_git_dir, registered_at, verify_worktree
from rametd.git.repository import RepositoryInfo, open_repository
from rametd.git.unseen import make_empty


async def revive(
    git: GitContext,
    repo: RepositoryInfo,
    path: Path,
    kept: Kept,
    branch: str,
    commit: str,
    *,
    new_branch: bool,
    aside: Sequence[Path] = (),
    git_dirs: Sequence[Path] = (),
) -> tuple[str, ...]:
    """See `Git.revive`."""
    warnings = await worktrees.create_worktree(git, repo, path, branch, commit, new_branch=new_branch)
    filled = await _fill(git, repo, path, kept, commit, aside)
    return (*warnings, *filled, *await _fill_inside(git, repo, path, kept, aside, git_dirs))


async def _fill(
    git: GitContext, repo: RepositoryInfo, path: Path, kept: Kept, commit: str, aside: Sequence[Path]
) -> list[str]:
    """What was kept, over a worktree with nothing but ``commit`` in it; in words, what cannot be the same."""
    warnings: list[str] = []
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
    for made, place in kept.worktrees:
        warnings += await _inside(git, repo, path, made, place)
    for folder in aside:
        left = await git.compute(put_back, folder, path, instead=folder == aside[0])
        warnings += (
            [f"what could not be stored is not all back, and stays in {folder}: {'; '.join(left)}"] if left else []
        )
    await git.compute(make_empty, path, kept.empty)
    if kept.begun:
        of = f" (of {', '.join(each[:12] for each in kept.pending)})" if kept.pending else ""
        warnings.append(f"the {kept.begun} that was under way{of} is not any more: its files are as they were")
    warnings += [
        f"what was uncommitted before that is in {each[:12]} alone: `git stash apply {each[:12]}` brings it back"
        for each in kept.autostashes
    ]
    if kept.later:
        name = f"git branch NAME {kept.later[:12]}"
        warnings.append(
            f"its branch had gone on to {kept.later[:12]} after its files were kept: `{name}` makes a branch of that"
        )
    if kept.earlier:
        warnings.append(f"the branch went on after its files were kept: they are in {kept.earlier[:12]}")
    return warnings


async def _fill_inside(
    git: GitContext, repo: RepositoryInfo, path: Path, kept: Kept, aside: Sequence[Path], git_dirs: Sequence[Path]
) -> list[str]:
    """The repositories inside, once all is there that is around them: their git directories first, then their files."""
    warnings: list[str] = []
    back: set[str] = set()
    for folder in git_dirs:
        places, left = await git.compute(gitdirs.put_back, folder, path)
        back.update(places)
        words = f"repositories inside are not all back, and stay in {folder}: {'; '.join(left)}"
        warnings += [words] if left else []
    for made, place in await git.compute(_all_nested, repo, kept):
        # One that came back from aside has all that was in it.
        if not any((folder / place / ".git").is_dir() for folder in aside):
            warnings += await nested.restore(git, repo.common_dir, path, made, place, whole=place in back)
    return warnings


def _all_nested(repo: RepositoryInfo, kept: Kept) -> list[tuple[str, str]]:
    """Those in worktrees inside too."""
    found = list(kept.nested)
    for made, place in kept.worktrees:
        found += [(commit, f"{place}/{deep}") for commit, deep in _all_nested(repo, kept_by(repo, made))]
    return found


async def _inside(git: GitContext, repo: RepositoryInfo, path: Path, made: str, place: str) -> list[str]:
    """A worktree inside the one that comes back: registered again, as the person's own, which is not locked; its files alone where that is not possible."""
    kept, target = await git.compute(kept_by, repo, made), path / place
    try:
        if not kept.head:
            raise GitFailedError("its branch had no commit")
        await _register(git, repo, target, kept.head)
    except (BranchTakenError, GitFailedError, WorktreeChangedError) as error:
        await nested.restore(git, repo.common_dir, path, made, place)
        again = f"git worktree add PATH {kept.on or kept.head[:12]}"
        return [
            f"{place} was a worktree and is a mere directory, though with its files ({error.message}): `{again}` makes one elsewhere"
        ]
    return [f"in {place}: {words}" for words in await _fill(git, repo, target, kept, kept.head, ())]


async def _register(git: GitContext, repo: RepositoryInfo, target: Path, head: str) -> None:
    """A worktree with ``head`` checked out detached; one that an interrupted run left half made is made again."""

    def is_whole() -> bool:
        git_dir = existing_git_dir(target)
        return git_dir is not None and git_dir in [entry.admin_dir for entry in registered_at(repo.common_dir, target)]

    async with git.locks.hold(repo.common_dir) as lock:
        if not await git.compute(is_whole):
            await removal.detach(git, repo, target, lock)
            await worktrees.register(git, repo, target, None, head, lock, reason=None)
    await removal.sweep(git, repo, target)
    await worktrees.fill(git, target, None)


async def _check_out(git: GitContext, path: Path, there: tuple[str, str], kept: Kept) -> list[str]:
    """What was checked out instead of the branch: the tree was just made, so that nothing in it is overwritten."""
    why = ""
    if kept.on:
        done = await git.process.run(path, *there, "checkout", "--quiet", "--no-guess", kept.on, "--")
        now = (await git.process.run(path, *there, "rev-parse", "--verify", "--quiet", "HEAD")).stdout.decode().strip()
        if done.returncode == 0 and now == kept.head:
            return []
        why = "is not as it was" if done.returncode == 0 else f"cannot be ({done.words})"
    await git.process.write(path, *there, "checkout", "--quiet", "--detach", kept.head, "--")
    if kept.on:
        back = f"`git switch {kept.on}` there takes it up again"
        return [f"{kept.on}, which it had checked out, {why}: HEAD is detached at {kept.head[:12]}, and {back}"]
    return []


async def restore_files(git: GitContext, worktree: Path, git_dir: Path, commit: str) -> None:
    """See `Git.restore_files`."""
    there = (f"--git-dir={git_dir}", f"--work-tree={worktree}")
    await git.process.write(worktree, *there, "restore", f"--source={commit}", "--worktree", "--", ":/")


async def _differs(git: GitContext, repo: RepositoryInfo, one: str, other: str) -> bool:
    def trees() -> bool:
        repository = open_repository(repo.common_dir)
        try:
            return repository[one].peel(pygit2.Tree).id != repository[other].peel(pygit2.Tree).id
        except KeyError as error:
            raise RefNotFoundError(f"commit {error} is not there any more", hint="git fsck tells more") from error

    return await git.compute(trees)
