"""Whether git still has all of a commit: a disk, or a loss of power or a `git prune` in the wrong moment, may have taken some of it."""

import os
from pathlib import Path

from rametd.git.context import GitContext
from rametd.git.loose import is_cut_short, sweep
from rametd.git.repository import RepositoryInfo, commit_exists


async def lost(git: GitContext, repo: RepositoryInfo, commit: str) -> tuple[str, ...]:
    """See `Git.lost`."""
    if await git.compute(is_cut_short, repo.common_dir / "objects", commit):
        return (commit,)
    if not await git.compute(commit_exists, repo, commit):
        return (commit,)
    return await _lost(git, repo, commit, "--branches")


async def mend_files(
    git: GitContext, repo: RepositoryInfo, worktree: Path, git_dir: Path, commit: str, branch: str
) -> list[str]:
    """Have git read all files of a commit that was just made of a worktree, whose ``branch`` goes with it; what it cannot read then, in words.

    Of a file that has not changed since it was committed git stores nothing, be its object cut short by a loss of power: it is written again.
    """
    files, known = f"{commit}^{{tree}}", (f"--exclude={branch}", "--branches")
    broken = await _lost(git, repo, files, *known)
    if not broken:
        return []
    await git.compute(sweep, repo.common_dir)
    there = (f"--git-dir={git_dir}", f"--work-tree={worktree}")
    listed = await git.process.run(worktree, *there, "ls-tree", "-r", "-z", commit)
    records = [record.partition(b"\t") for record in listed.stdout.split(b"\0") if record]
    paths = {path for fields, _, path in records if fields.split()[2].decode() in broken and b"\n" not in path}
    await git.process.run(
        worktree, *there, "hash-object", "-w", "--stdin-paths", stdin=b"".join(path + b"\n" for path in sorted(paths))
    )
    left = await _lost(git, repo, files, *known)
    names = {fields.split()[2].decode(): os.fsdecode(path) for fields, _, path in records}
    # What is not in the worktree does not go with it: sparse checkouts.
    gone = await git.compute(
        lambda: {each for each in left if each in names and not os.path.lexists(worktree / names[each])}
    )
    return [
        f"git cannot read what it has of {names.get(each, 'its files')} ({each[:60]})"
        for each in left
        if each not in gone
    ]


async def _lost(git: GitContext, repo: RepositoryInfo, revision: str, *known: str) -> tuple[str, ...]:
    partial = await git.process.run(repo.common_dir, "config", "--get", "extensions.partialclone")
    if partial.returncode == 0:  # what is not there is at the remote
        return ()
    done = await git.process.run(
        repo.common_dir,
        *("rev-list", "--objects", "--missing=print", revision, "--not", *known, "--remotes", "--tags", "--"),
    )
    if done.returncode != 0:  # a commit of its history: its objects alone can be missing and the rest be listed
        return (done.words,)
    lines = done.stdout.decode(errors="replace").splitlines()
    objects = repo.common_dir / "objects"
    missing = [line[1:] for line in lines if line.startswith("?")]
    there = [line.partition(" ")[0] for line in lines if not line.startswith("?")]
    # A file's content git lists by its name alone.
    cut = await git.compute(lambda: [name for name in there if is_cut_short(objects, name)])
    return (*missing, *cut)
