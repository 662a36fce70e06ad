"""All that is in a worktree, as commits: its files, what they do not tell, what is in the repositories and worktrees inside it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pygit2

from rametd.git import gitdirs, marks, nested, remains, unseen
from rametd.git.context import GitContext
from rametd.git.gitdirs import GitDir
from rametd.git.inside import places
from rametd.git.kept import quoted
from rametd.git.registrations import worktrees_inside
from rametd.git.remains import describe
from rametd.git.repository import Head, RepositoryInfo, open_repository
from rametd.git.snapshot import write_commit, write_tree
from rametd.git.underway import UnderWay, under_way
from rametd.git.unread import Unread


@dataclass(frozen=True, slots=True)
class Contents:
    """``notes`` are lines as `kept` reads them, ``commits`` those that they name; ``told``: in words, what goes for good or otherwise than it was.

    ``git_dirs`` of repositories inside no commit holds: removing the worktree would lose them.
    """

    tree: str
    head: Head
    notes: tuple[str, ...]
    commits: tuple[str, ...]
    unread: tuple[Unread, ...]
    told: tuple[str, ...]
    git_dirs: tuple[GitDir, ...] = ()


async def read(
    git: GitContext, repo: RepositoryInfo, worktree: Path, git_dir: Path, branch: str, *, borrowed: bool = False
) -> Contents:
    """``branch`` is what is expected to be checked out. ``borrowed``: ``git_dir`` is the repository's own, so that its HEAD and index are not this
    worktree's. Raises GitFailedError."""
    written = await write_tree(git, worktree, git_dir)
    head = Head(None, None) if borrowed else await remains.last_known_head(git, repo, git_dir, written.head)
    worktrees = await git.compute(worktrees_inside, repo.common_dir, worktree)
    found = await places(git, worktree, git_dir)
    others = {place: recorded for place, recorded in found.items() if place not in worktrees}
    below = await nested.keep(git, repo.common_dir, worktree, others)
    git_dirs = list(await gitdirs.collect(git, repo.common_dir, worktree, git_dir, below))
    begun = UnderWay() if borrowed else await git.compute(under_way, repo, git_dir)
    notes = remains.under_way_notes(begun)
    notes += [] if borrowed else await _notes(git, repo, worktree, git_dir, head, branch)
    commits = remains.commits_in(notes)
    lost = [*nested.unkept(written.skipped, [*worktrees, *(place for _, place in below.kept)]), *below.unread]
    told = [ending(what) for what in begun.what]
    for place, entry in worktrees.items():
        there = await read(git, repo, worktree / place, entry.admin_dir, "")
        made = await git.compute(_commit, repo, f"worktree: {quoted(place)}", there)
        notes.append(f"worktree {made} {quoted(place)}")
        commits.append(made)
        lost += [nested.inside(place, each) for each in there.unread]
        git_dirs += [gitdirs.inside(place, each) for each in there.git_dirs]
        told += [
            f"{describe(place, entry)} goes with it, and comes back with it",
            *(f"in {place}: {line}" for line in there.told),
        ]
    gone = await remains.inside(git, repo, worktree)
    notes += gone.notes
    commits += gone.commits
    told += gone.words
    notes += [f"nested {made} {quoted(place)}" for made, place in below.kept]
    commits += [made for made, _ in below.kept]
    rest = await unseen.look(git, worktree, git_dir, [*found, *worktrees])
    notes += [f"empty {quoted(place)}" for place in rest.empty]
    if rest.special:
        told.append(
            f"no commit can hold these, and they go for good: {', '.join(f'{path} ({kind})' for path, kind in rest.special)}"
        )
    tree = await git.compute(_without, repo, written.tree, [each.place for each in lost if each.place is not None])
    return Contents(tree, head, tuple(notes), tuple(commits), tuple(lost), tuple(told), tuple(git_dirs))


def ending(what: str) -> str:
    """Of a merge or the like that is under way in a worktree that goes, in words."""
    return f"a {what} is under way in it: its files and commits come back, the {what} itself does not"


def _commit(repo: RepositoryInfo, title: str, contents: Contents) -> str:
    parents = dict.fromkeys([*([contents.head.commit] if contents.head.commit else []), *contents.commits])
    message = "\n".join([title, "", *contents.notes]).rstrip() + "\n"
    return write_commit(open_repository(repo.common_dir), contents.tree, message, list(parents))


def _without(repo: RepositoryInfo, tree: str, places: Sequence[str]) -> str:
    """A tree without what is there of files that could not be read: an older version would come back in the place of theirs."""
    if not places:
        return tree
    repository = open_repository(repo.common_dir)
    index = pygit2.Index()
    index.read_tree(repository[tree].peel(pygit2.Tree))
    gone = [
        entry.path
        for entry in index
        if entry.mode != pygit2.enums.FileMode.COMMIT
        and any(entry.path == place or entry.path.startswith(f"{place}/") for place in places)
    ]
    for path in gone:
        index.remove(path)
    return str(index.write_tree(repository))


async def _notes(
    git: GitContext, repo: RepositoryInfo, worktree: Path, git_dir: Path, head: Head, branch: str
) -> list[str]:
    """What the files do not tell: what is checked out where that is not ``branch``, what is staged or marked."""
    notes = remains.head_notes(head, branch)
    there = (f"--git-dir={git_dir}", f"--work-tree={worktree}")
    notes += [f"{mark.kind} {quoted(mark.path)}" for mark in await marks.read(git, worktree, there)]
    staged = await git.process.run(worktree, *there, "write-tree", "--missing-ok")
    tree = staged.stdout.decode().strip()
    if staged.returncode != 0 or not tree:  # in the middle of a merge: the files say what there is
        return notes

    def commit() -> list[str]:
        repository = open_repository(repo.common_dir)
        if head.commit is not None and str(repository[head.commit].peel(pygit2.Tree).id) == tree:
            return []
        return [f"index {write_commit(repository, tree, 'index', [])}"]

    return notes + await git.compute(commit)
