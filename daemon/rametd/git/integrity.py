"""Check that git still has all objects of a commit or snapshot: a disk fault, a power cut or a `git
prune` can lose some."""

import os
from pathlib import Path

from rametd.git.context import GitContext
from rametd.git.loose import is_cut_short, sweep
from rametd.git.process import at, failed, path_lines
from rametd.git.repository import RepositoryInfo, common_dir, open_repository


async def lost(git: GitContext, repo: RepositoryInfo, name: str) -> tuple[str, ...]:
    """Return the missing or truncated objects of a commit or snapshot, or git's error if it cannot
    list them; nothing if intact.

    Skip objects that branches, remote branches and tags have, and partial clones."""
    if await git.compute(is_cut_short, repo.common_dir / "objects", name):
        return (name,)
    if not await git.compute(lambda: name in open_repository(repo.common_dir)):
        return (name,)
    return await _lost(git, repo, name, "--branches")


async def mend_files(
    git: GitContext, repo: RepositoryInfo, worktree: Path, git_dir: Path, files: str, branch: str
) -> list[str]:
    """Verify the tree ``files``, which was just captured from a worktree, and rewrite damaged
    objects. Return a line for each object that stays unreadable. ``branch`` may be deleted
    afterwards.

    Git does not store an unchanged file again, even if a power cut truncated its object.
    """
    known = (f"--exclude={branch}", "--branches")
    broken = await _lost(git, repo, files, *known)
    if not broken:
        return []
    await git.compute(sweep, repo)
    there = at(git_dir, worktree)
    listed = await git.process.run(worktree, *there, "ls-tree", "-r", "-z", files)
    records = [record.partition(b"\t") for record in listed.stdout.split(b"\0") if record]
    paths = {path for fields, _, path in records if fields.split()[2].decode() in broken}
    await git.process.run(worktree, *there, "hash-object", "-w", "--stdin-paths", stdin=path_lines(sorted(paths)))
    left = await _lost(git, repo, files, *known)
    names = {fields.split()[2].decode(): os.fsdecode(path) for fields, _, path in records}
    # A file outside a sparse checkout is not in the worktree, so its removal does not lose it.
    gone = await git.compute(
        lambda: {each for each in left if each in names and not os.path.lexists(worktree / names[each])}
    )
    return [
        f"git cannot read what it has of {names.get(each, 'its files')} ({each[:60]})"
        for each in left
        if each not in gone
    ]


async def lost_objects(git: GitContext, git_dir: Path, tree: str) -> tuple[str, ...]:
    """Return the missing or truncated objects of a tree, including those that a branch has."""
    done = await git.process.run(
        git_dir, f"--git-dir={git_dir}", "rev-list", "--objects", "--missing=print", tree, "--"
    )
    if done.returncode != 0:
        raise failed(done, ("rev-list",))
    objects = await git.compute(lambda: common_dir(git_dir) / "objects")
    lines = done.stdout.decode(errors="replace").splitlines()
    there = [line.partition(" ")[0] for line in lines if not line.startswith("?")]
    cut = await git.compute(lambda: [name for name in there if is_cut_short(objects, name)])
    return (*(line[1:] for line in lines if line.startswith("?")), *cut)


async def _lost(git: GitContext, repo: RepositoryInfo, revision: str, *known: str) -> tuple[str, ...]:
    partial = await git.process.run(repo.common_dir, "config", "--get", "extensions.partialclone")
    if partial.returncode == 0:  # missing objects are at the remote
        return ()
    done = await git.process.run(
        repo.common_dir,
        *("rev-list", "--objects", "--missing=print", revision, "--not", *known, "--remotes", "--tags", "--"),
    )
    if done.returncode != 0:  # a commit of its history is missing; for other missing objects git lists the rest
        return (done.words,)
    lines = done.stdout.decode(errors="replace").splitlines()
    objects = repo.common_dir / "objects"
    missing = [line[1:] for line in lines if line.startswith("?")]
    there = [line.partition(" ")[0] for line in lines if not line.startswith("?")]
    # Git lists a blob by its id only, so check that it is complete.
    cut = await git.compute(lambda: [name for name in there if is_cut_short(objects, name)])
    return (*missing, *cut)
