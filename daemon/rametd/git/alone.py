"""What exists in one place only: files and commits that a kept commit has and nothing else does, paths of it that no branch has."""

from collections.abc import Sequence
from pathlib import Path

import pygit2

from rametd.domain.errors import RefNotFoundError
from rametd.git.context import GitContext
from rametd.git.inventory import reachable
from rametd.git.kept import Kept, kept_by
from rametd.git.repository import RepositoryInfo, open_repository
from rametd.git.snapshot import current_tree, private_index


async def is_alone(git: GitContext, repo: RepositoryInfo, kept: Kept, worktree: Path, folder: str) -> bool:
    """See `Git.is_alone`."""
    there = await _trees(git, worktree) if await git.compute(worktree.is_dir) else []
    known = ("--not", "--branches", "--remotes", "--tags", f"--glob={folder}*", *there, "--")
    commits = await git.process.run(repo.common_dir, "rev-list", kept.commit, *known)
    if commits.returncode != 0:
        return True  # something of it is missing: nobody can say that the rest is elsewhere
    ours = {kept.commit, kept.index, *(made for made, _ in (*kept.nested, *kept.worktrees))}
    if set(commits.stdout.decode().split()) - ours:
        return True
    # Objects are the lines with a space: a path follows on it, of a commit's own tree an empty one.
    objects = await git.process.run(repo.common_dir, "rev-list", "--objects", kept.commit, *known)
    return objects.returncode != 0 or b" " in objects.stdout


async def _trees(git: GitContext, worktree: Path) -> list[str]:
    """The files, and what is staged of them; the latter cannot be said in the middle of a merge."""
    files = await current_tree(git, worktree)
    git_dir = await git.verified(worktree, None)
    ends = (f"--git-dir={git_dir}", f"--work-tree={worktree}")
    async with private_index(git, git_dir) as index:
        environment = {"GIT_INDEX_FILE": str(index)}
        staged = await git.process.run(worktree, *ends, "write-tree", "--missing-ok", environment=environment)
    return [files.tree, *staged.stdout.decode().split()]


def holder(repo: RepositoryInfo, commit: str, paths: Sequence[str], without: str) -> str:
    """See `Git.holder`. Blocks."""
    repository = open_repository(repo.common_dir)
    try:
        files = repository[commit].peel(pygit2.Tree)
        wanted = [(path, _entry(files, path)) for path in paths]
    except (KeyError, pygit2.GitError) as error:
        raise RefNotFoundError(f"{commit} is not whole: {error}", hint="git fsck tells more") from error
    for name in repository.references:
        if not name.startswith(("refs/heads/", "refs/remotes/", "refs/tags/")) or name == f"refs/heads/{without}":
            continue
        try:
            tree = repository.references[name].peel(pygit2.Tree)
        except (KeyError, ValueError, pygit2.GitError):  # no commit, or not there any more
            continue
        if all(_entry(tree, path) == entry for path, entry in wanted):
            return name.split("/", 2)[2]
    return ""


async def inside(git: GitContext, repo: RepositoryInfo, kept: Kept) -> tuple[str, ...]:
    """See `Git.only_inside`."""
    words = [f"the repository {place} inside it" for _, place in kept.nested]
    for made, place in kept.worktrees:
        there = await git.compute(kept_by, repo, made)
        own = there.changed or await inside(git, repo, there)
        if own or not there.head or not await reachable(git, repo, there.head):
            words.append(f"the worktree {place} inside it")
    if kept.index and (staged := await git.compute(_only_staged, repo, kept)):
        words.append(f"what was staged of {', '.join(staged)}")
    begun = f"before a {kept.begun or 'merge'} that was under way"
    return (*words, *(f"what was uncommitted {begun} ({each[:12]})" for each in kept.autostashes))


def _only_staged(repo: RepositoryInfo, kept: Kept) -> list[str]:
    """Files that are staged otherwise than both what was checked out and what the worktree had."""
    repository = open_repository(repo.common_dir)
    trees = [repository[each].peel(pygit2.Tree) for each in (kept.start, kept.index, kept.commit) if each]
    *_, staged, files = trees
    paths = [delta.new_file.path for delta in files.diff_to_tree(staged).deltas]
    return [
        path
        for path in paths
        if _entry(staged, path) not in {None, *(_entry(tree, path) for tree in (trees[0], files))}
    ]


def _entry(tree: pygit2.Tree, path: str) -> tuple[str, int] | None:
    try:
        found = tree[path]
    except KeyError:
        return None
    return str(found.id), found.filemode
