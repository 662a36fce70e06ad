"""Whether git still has all of a commit: a disk, or a loss of power or a `git prune` in the wrong moment, may have taken some of it."""

from rametd.git.context import GitContext
from rametd.git.loose import is_cut_short
from rametd.git.repository import RepositoryInfo, commit_exists


async def lost(git: GitContext, repo: RepositoryInfo, commit: str) -> tuple[str, ...]:
    """See `Git.lost`."""
    objects = repo.common_dir / "objects"
    if await git.compute(is_cut_short, objects, commit):
        return (commit,)
    if not await git.compute(commit_exists, repo, commit):
        return (commit,)
    partial = await git.process.run(repo.common_dir, "config", "--get", "extensions.partialclone")
    if partial.returncode == 0:  # what is not there is at the remote
        return ()
    done = await git.process.run(
        repo.common_dir,
        *("rev-list", "--objects", "--missing=print", commit, "--not", "--branches", "--remotes", "--tags", "--"),
    )
    if done.returncode != 0:  # a commit of its history: its objects alone can be missing and the rest be listed
        return (done.words,)
    lines = done.stdout.decode(errors="replace").splitlines()
    missing = [line[1:] for line in lines if line.startswith("?")]
    there = [line.partition(" ")[0] for line in lines if not line.startswith("?")]
    # A file's content git lists by its name alone.
    cut = await git.compute(lambda: [name for name in there if is_cut_short(objects, name)])
    return (*missing, *cut)
