"""A worktree brought back from what was kept of it (`kept`): branch, files, what was staged or marked, what was checked out, what was inside it.

It may be done again over what a daemon that was killed has left half made, and somebody may have worked in by then: their files stay.
"""

from collections.abc import Sequence
from pathlib import Path

import pygit2

from rametd.domain.errors import BranchTakenError, GitFailedError, RefNotFoundError, WorktreeChangedError
from rametd.domain.text import utf8
from rametd.git import gitdirs, marks, refilling, removal, worktrees
from rametd.git.aside import put_back
from rametd.git.context import GitContext
from rametd.git.kept import Kept, kept_by
from rametd.git.laying import is_untouched, lay
from rametd.git.obstacles import named
from rametd.git.registrations import existing_git_dir, registered_at
from rametd.git.repository import RepositoryInfo, head_of, open_repository
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
    fresh = not await git.compute(worktrees.is_complete, path, branch)
    warnings = await worktrees.create_worktree(git, repo, path, branch, commit, new_branch=new_branch)
    filled = await _fill(git, repo, path, kept, commit, aside, fresh=fresh)
    inside = await _fill_inside(git, repo, path, kept, aside, git_dirs, fresh=fresh)
    await git.make_durable(repo.common_dir, path.parent)  # what was kept may go from here on
    return tuple(map(utf8, (*warnings, *filled, *inside)))


async def set_half_made_aside(
    git: GitContext, repo: RepositoryInfo, path: Path, known: Sequence[str], keep_at: Path, *, whole: bool
) -> Path | None:
    """See `Git.set_half_made_aside`."""
    git_dir = await git.compute(existing_git_dir, path)
    entries = await git.compute(registered_at, repo.common_dir, path)
    if git_dir is None or git_dir not in [entry.admin_dir for entry in entries]:
        return None
    if not whole and await git.compute((git_dir / "index").is_file):
        return None
    try:
        ours = await is_untouched(git, path, git_dir, known)
    except GitFailedError:  # it cannot be known
        ours = False
    if ours:
        return None
    async with git.locks.hold(repo.common_dir) as lock:
        _, moved = await removal.detach(git, repo, path, lock, unfinished=True, keep_at=keep_at)
    return moved


async def _fill(
    git: GitContext, repo: RepositoryInfo, path: Path, kept: Kept, commit: str, aside: Sequence[Path], *, fresh: bool
) -> list[str]:
    """What was kept, over a worktree that was made at ``commit``; in words, what cannot be the same."""
    git_dir = await git.verified(path, None)
    there = (f"--git-dir={git_dir}", f"--work-tree={path}")
    warnings = await _check_out(git, path, git_dir, kept, commit) if kept.head else []
    head = await git.compute(lambda: head_of(open_repository(git_dir)).commit)
    start = head if kept.head and head == commit else kept.start or commit
    if await _differs(git, repo, start, kept.commit) and (kept.head or kept.changed):
        apart = [place for _, place in (*kept.worktrees, *kept.nested)]
        left = await lay(git, path, git_dir, start, kept.commit, apart=apart, fresh=fresh)
        back = f"`git restore --source={kept.commit[:12]} -- PATH` there brings what was kept"
        warnings += (
            [f"somebody wrote to {named(list(left))} before all was back, and that stays: {back}"] if left else []
        )
    if kept.index:
        warnings += await _stage(git, path, there, kept, (commit, start))
    for made, place in kept.worktrees:
        warnings += await _inside(git, repo, path, made, place)
    for folder in aside:
        left_over = await git.compute(put_back, folder, path, instead=folder == aside[0])
        warnings += (
            [f"what was kept aside is not all back, and stays in {folder}: {'; '.join(left_over)}"] if left_over else []
        )
    await git.compute(make_empty, path, kept.empty)
    warnings += await marks.put_back(git, path, there, kept.marks)
    return [*warnings, *_otherwise(kept)]


def _otherwise(kept: Kept) -> list[str]:
    """In words, what was kept and does not come back into a worktree."""
    told = []
    if kept.begun:
        of = f" (of {', '.join(each[:12] for each in kept.pending)})" if kept.pending else ""
        told.append(f"the {kept.begun} that was under way{of} is not any more: its files are as they were")
    told += [
        f"what was uncommitted before that is in {each[:12]} alone: `git stash apply {each[:12]}` brings it back"
        for each in kept.autostashes
    ]
    if kept.later:
        name = f"git branch NAME {kept.later[:12]}"
        told.append(
            f"its branch had gone on to {kept.later[:12]} after its files were kept: `{name}` makes a branch of that"
        )
    if kept.earlier:
        told.append(f"the branch went on after its files were kept: they are in {kept.earlier[:12]}")
    return told


async def _stage(git: GitContext, path: Path, there: tuple[str, str], kept: Kept, made_at: Sequence[str]) -> list[str]:
    """What was staged, unless somebody has staged something else since the worktree was made."""
    trees = [f"{commit}^{{tree}}" for commit in (*made_at, kept.commit)]
    known = (await git.process.read(path, *there, "rev-parse", *trees, f"{kept.index}^{{tree}}")).split()
    now = await git.process.run(path, *there, "write-tree", "--missing-ok")
    # By `restore`, which knows of sparse checkouts, rather than by reading a tree into the index.
    words = ("restore", f"--source={kept.index}", "--staged")
    if now.stdout.strip() in known:
        await git.process.write(path, *there, *words, "--", ":/")
        return []
    return [
        f"somebody staged something before all was back, and that stays: `git {' '.join(words)} :/` there stages what was"
    ]


async def _fill_inside(
    git: GitContext,
    repo: RepositoryInfo,
    path: Path,
    kept: Kept,
    aside: Sequence[Path],
    git_dirs: Sequence[Path],
    *,
    fresh: bool,
) -> list[str]:
    """The repositories inside, once all is there that is around them: their git directories first, then their files."""
    warnings: list[str] = []
    back: set[str] = set()
    for folder in git_dirs:
        places, left = await git.compute(gitdirs.put_back, folder, path)
        back.update(places)
        words = f"repositories inside are not all back, and stay in {folder}: {'; '.join(left)}"
        warnings += [words] if left else []
    below = await git.compute(_all_nested, repo, kept)
    for place in sorted(back.difference(place for _, place in below)):
        warnings += await refilling.check_out(git, path, place)
    for made, place in below:
        # One that came back from aside has all that was in it.
        if not any((folder / place / ".git").is_dir() for folder in aside):
            warnings += await refilling.restore(
                git, repo.common_dir, path, made, place, whole=place in back, fresh=fresh
            )
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
        fresh = await _register(git, repo, target, kept.head, made)
    except (BranchTakenError, GitFailedError, WorktreeChangedError) as error:
        await refilling.restore(git, repo.common_dir, path, made, place)
        again = f"git worktree add PATH {kept.on or kept.head[:12]}"
        return [
            f"{place} was a worktree and is a mere directory, though with its files ({error.message}): `{again}` makes one elsewhere"
        ]
    return [f"in {place}: {words}" for words in await _fill(git, repo, target, kept, kept.head, (), fresh=fresh)]


async def _register(git: GitContext, repo: RepositoryInfo, target: Path, head: str, made: str) -> bool:
    """A worktree with ``head`` checked out detached. One that an interrupted run left half made is made again, unless somebody was at it since: then
    WorktreeChangedError. False where that run had made it."""

    def state() -> tuple[Path | None, bool, bool]:
        """What git knows it by, whether that is whole, and whether anything is in its place."""
        git_dir = next((entry.admin_dir for entry in registered_at(repo.common_dir, target)), None)
        whole = git_dir is not None and existing_git_dir(target) == git_dir and (git_dir / "index").is_file()
        return git_dir, whole, target.is_dir() and any(target.iterdir())

    git_dir, whole, filled = await git.compute(state)
    if whole:
        return False
    if filled and (git_dir is None or not await is_untouched(git, target, git_dir, (head, made))):
        raise WorktreeChangedError("somebody wrote there before it was back", worktree=str(target))
    async with git.locks.hold(repo.common_dir) as lock:
        await removal.detach(git, repo, target, lock)
        await worktrees.register(git, repo, target, None, head, lock, reason=None)
    await removal.sweep(git, repo, target)
    await worktrees.fill(git, target, None)
    return True


async def _check_out(git: GitContext, path: Path, git_dir: Path, kept: Kept, commit: str) -> list[str]:
    """What was checked out instead of the branch; in words, where it is otherwise."""
    there = (f"--git-dir={git_dir}", f"--work-tree={path}")
    now = await git.compute(lambda: head_of(open_repository(git_dir)))
    if now.commit == kept.head and now.branch == (kept.on or None):
        return []
    back = f"`git switch {kept.on or f'--detach {kept.head[:12]}'}` there takes it up again"
    if now.commit not in {commit, kept.head}:
        return [
            f"HEAD is where somebody put it before all was back, rather than at {kept.on or kept.head[:12]}: {back}"
        ]
    quiet = ("checkout", "--quiet", "--no-overwrite-ignore")
    why = ""
    if kept.on:
        done = await git.process.run(path, *there, *quiet, "--no-guess", kept.on, "--")
        now = await git.compute(lambda: head_of(open_repository(git_dir)))
        if done.returncode == 0 and now.commit == kept.head:
            return []
        why = "is not as it was" if done.returncode == 0 else f"cannot be ({done.words})"
    done = await git.process.run(path, *there, *quiet, "--detach", kept.head, "--")
    if done.returncode != 0:
        return [f"{kept.head[:12]}, which it had checked out, cannot be ({done.words}): {back}"]
    if kept.on:
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
