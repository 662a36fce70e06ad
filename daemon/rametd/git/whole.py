"""Whether git still has all of a commit: a disk, or a `git prune` in the wrong moment, may have taken some of it."""

from rametd.git.context import GitContext
from rametd.git.repository import RepositoryInfo, commit_exists


async def lost(git: GitContext, repo: RepositoryInfo, commit: str) -> tuple[str, ...]:
    """See `Git.lost`."""
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
    return tuple(line[1:] for line in done.stdout.decode(errors="replace").splitlines() if line.startswith("?"))
