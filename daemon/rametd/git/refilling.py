"""Repositories inside a worktree that comes back: their files, over what is there of them."""

import os
from collections.abc import Collection
from pathlib import Path

import pygit2

from rametd.domain.errors import GitFailedError
from rametd.git.context import GitContext
from rametd.git.copying import objects_of
from rametd.git.inside import git_dir_at
from rametd.git.obstacles import named
from rametd.git.repository import open_repository
from rametd.git.snapshot import scratch_index


async def restore(
    git: GitContext, common: Path, worktree: Path, commit: str, place: str, *, whole: bool = False, fresh: bool = False
) -> list[str]:
    """The files of a repository inside the worktree, over those of a submodule that was filled again; what cannot be the same.

    ``whole``: its own git directory is back already. ``fresh``: nobody but us has written there; else what is there and is neither as it was kept nor
    as the repository has it was written by somebody since an earlier run, and stays.
    """
    target = worktree / place
    await git.compute(lambda: target.mkdir(parents=True, exist_ok=True))
    noted = await git.compute(lambda: open_repository(common)[commit].peel(pygit2.Commit))
    mere = noted.message.endswith("\n\nfiles\n")
    inner = None if mere else await git.compute(git_dir_at, target)
    told: list[str] = []
    try:
        theirs = await _lay(git, common, target, inner, commit, fresh=fresh)
    except GitFailedError as error:
        told.append(f"not all files of {place} are back ({error.message}): {commit[:12]} has them")
    else:
        listed = named([os.fsdecode(path) for path in sorted(theirs)])
        stays = f"somebody wrote to {listed} in {place} before all was back, and that stays"
        told += [f"{stays}: {commit[:12]} has what was kept"] if theirs else []
    if whole or mere:
        return told
    own = bool(noted.parent_ids)
    if inner is not None:
        return [*told, f"{place} had commits that were never pushed: {commit[:12]} has them"] if own else told
    words = f"its commits are in {commit[:12]}" if own else "its history is not"
    return [*told, f"{place} was a repository of its own: its files are back, {words}"]


async def check_out(git: GitContext, worktree: Path, place: str) -> list[str]:
    """The files of a repository inside that stood clean, whose git directory is back; none that is there is written."""
    target = worktree / place
    git_dir = await git.compute(git_dir_at, target)
    there = (f"--git-dir={git_dir}", f"--work-tree={target}")
    missing = await git.process.read(target, *there, "ls-files", "--deleted", "-z")
    done = await git.process.run(target, *there, "checkout-index", "-z", "--stdin", "-u", stdin=missing)
    if done.returncode == 0:
        return []
    return [f"not all files of {place} are back ({done.words}): `git restore .` there tries again"]


async def _lay(
    git: GitContext, common: Path, target: Path, inner: Path | None, commit: str, *, fresh: bool
) -> set[bytes]:
    """Write the files of a commit; what a submodule was filled with and had lost goes again. Returns the paths that somebody else wrote."""
    # Through its own git directory where there is one: what its filters store elsewhere is there.
    there = (f"--git-dir={inner or common}", f"--work-tree={target}")
    async with scratch_index(git, common) as index:
        environment = {"GIT_INDEX_FILE": str(index), **objects_of(common)}
        await git.process.write(target, *there, "read-tree", commit, environment=environment)
        await git.process.run(target, *there, "update-index", "-q", "--refresh", environment=environment)
        changed = ("diff-files", "--name-only", "--ignore-submodules=all", "-z")
        wanted = set((await git.process.read(target, *there, *changed, environment=environment)).split(b"\0")[:-1])
        kept = await git.process.read(target, *there, "ls-files", "-z", environment=environment)
        theirs: set[bytes] = set()
        if not fresh:
            theirs = await git.compute(_present, target, wanted)
        if inner is not None:
            changed_since = await _changed(git, target, inner) if not fresh else set()
            theirs &= changed_since
            filled = await _files(git, target, inner, untracked=fresh)
            await git.compute(_delete, target, filled - changed_since - set(kept.split(b"\0")))
        paths = b"".join(path + b"\0" for path in sorted(wanted - theirs))
        laying = ("checkout-index", "--force", "-z", "--stdin")
        await git.process.write(target, *there, *laying, stdin=paths, environment=environment)
    return theirs


def _present(target: Path, paths: Collection[bytes]) -> set[bytes]:
    return {path for path in paths if os.path.lexists(target / os.fsdecode(path))}


async def _changed(git: GitContext, target: Path, inner: Path) -> set[bytes]:
    """Files that are neither as a repository's index has them nor as what it has checked out has."""
    ends = (f"--git-dir={inner}", f"--work-tree={target}")
    listing = ("diff", "--name-only", "--no-ext-diff", "--no-renames", "--ignore-submodules=all", "-z")
    new = await git.process.read(target, *ends, "ls-files", "--others", "-z")
    changed = set((await git.process.read(target, *ends, *listing)).split(b"\0"))
    since = await git.process.run(target, *ends, *listing, "HEAD", "--")
    return set(new.split(b"\0")) | (changed & set(since.stdout.split(b"\0")) if since.returncode == 0 else changed)


async def _files(git: GitContext, target: Path, inner: Path, *, untracked: bool) -> set[bytes]:
    ends = (f"--git-dir={inner}", f"--work-tree={target}")
    staged = (await git.process.read(target, *ends, "ls-files", "--stage", "-z")).split(b"\0")[:-1]
    files = {record.partition(b"\t")[2] for record in staged if not record.startswith(b"160000 ")}
    if not untracked:
        return files
    others = await git.process.read(target, *ends, "ls-files", "--others", "--exclude-standard", "-z")
    return files | {path for path in others.split(b"\0")[:-1] if not path.endswith(b"/")}


def _delete(target: Path, paths: Collection[bytes]) -> None:
    """Files, and the directories that are empty then. Blocks."""
    for path in sorted(paths, reverse=True):
        file = target / os.fsdecode(path)
        file.unlink(missing_ok=True)
        for folder in file.parents:
            if folder == target or not folder.is_dir() or any(folder.iterdir()):
                break
            folder.rmdir()
