"""Repositories inside a worktree, as a checkpoint has them, and brought back to that.

The tree of a checkpoint only points at them. Its message tells of each that there was, a line at the end: ``nested COMMIT PLACE``, with what `nested`
keeps of one, or ``clean COMMIT PLACE`` of one that stood as it is in a commit that its remote has. Of one that goes on when the files around it are
brought back the branch stays, as do branches of others; a detached HEAD goes where it was.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pygit2

from rametd.domain.errors import GitBusyError, GitFailedError, WorktreeChangedError
from rametd.domain.text import utf8
from rametd.git import nested, refilling
from rametd.git.context import GitContext
from rametd.git.copying import absent, copy_objects
from rametd.git.inside import git_dir_at, places, staged_alone, under_way
from rametd.git.kept import quoted, unquoted
from rametd.git.obstacles import additions, in_the_way, named, refuse_repositories
from rametd.git.registrations import verify_worktree
from rametd.git.repository import common_dir, head_of, open_repository
from rametd.git.snapshot import Snapshot, private_index, write_commit
from rametd.git.unread import add_all, is_unborn


@dataclass(frozen=True, slots=True)
class Inside:
    """``kept``: ``commit`` holds its files as they were, else they were as that commit of its own has them."""

    kept: bool
    commit: str
    place: str


async def keep(
    git: GitContext, worktree: Path, git_dir: Path, tree: str, skipped: Sequence[str]
) -> tuple[tuple[Inside, ...], tuple[str, ...]]:
    """Keep what ``tree`` only points at; and what of it, and of what git ``skipped`` as it made that, could not be kept, in words."""
    common = common_dir(git_dir)
    found = await git.compute(_linked, common, tree, await places(git, worktree, git_dir))
    inside: list[Inside] = []
    words: list[str] = []
    for place, recorded in found.items():
        try:
            below = await nested.keep(git, common, worktree, {place: recorded}, brief=True)
        except (GitFailedError, GitBusyError) as error:  # the files around it are kept all the same
            words.append(f"in {place}: {error.message}")
            continue
        inside += [Inside(True, commit, each) for commit, each in below.kept]
        inside += [Inside(False, commit, each) for commit, each in below.clean]
        words += [each.words for each in below.unread]
    left = nested.unkept(skipped, [each.place for each in inside])
    return tuple(inside), tuple(map(utf8, (*(each.words for each in left), *words)))


async def keep_changes(git: GitContext, worktree: Path, taken: Snapshot) -> tuple[str, tuple[str, ...]]:
    """See `Git.changes_inside`."""
    if taken.plain:
        return "", taken.skipped
    git_dir = await git.compute(verify_worktree, worktree, None)
    common = common_dir(git_dir)
    inside, skipped = await keep(git, worktree, git_dir, taken.tree, taken.skipped)

    def commit() -> str:
        dirs = {each: git_dir_at(worktree / each.place) for each in inside if each.kept}
        # Worktrees are other work, each on its own branch.
        kept = [each for each, inner in dirs.items() if inner is None or inner.parent != common / "worktrees"]
        parents = list(dict.fromkeys(each.commit for each in kept))
        return write_commit(open_repository(common), taken.tree, noted("changes\n\n", kept), parents) if kept else ""

    return await git.compute(commit), skipped


def _linked(common: Path, tree: str, found: dict[str, str | None]) -> dict[str, str | None]:
    """Without those whose files the tree has; and the commits that it points at."""
    top = open_repository(common)[tree].peel(pygit2.Tree)
    known = {place: top[place] for place in found if place in top}
    links = {place: str(entry.id) for place, entry in known.items() if not isinstance(entry, pygit2.Tree)}
    return {place: links.get(place) for place in found if place in links or place not in known}


def noted(message: str, inside: Iterable[Inside]) -> str:
    """The message of a checkpoint, with what is inside."""
    lines = (f"{'nested' if each.kept else 'clean'} {each.commit} {quoted(each.place)}\n" for each in inside)
    return message + "".join(lines)


def of_message(message: str) -> tuple[Inside, ...]:
    """The reverse."""
    found: list[Inside] = []
    for line in message.split("\n"):
        kind, _, rest = line.partition(" ")
        if kind in {"nested", "clean"}:
            commit, _, place = rest.partition(" ")
            found.append(Inside(kind == "nested", commit, unquoted(place)))
    return tuple(found)


def contents(common: Path, commit: str) -> frozenset[tuple[str, ...]]:
    """What a checkpoint has of repositories inside, equal for equal files. Blocks."""
    repository = open_repository(common)
    inside = inside_of(common, commit)
    commits = {
        each: repository[each.commit].peel(pygit2.Commit) for each in inside if each.kept and each.commit in repository
    }
    files = {each: (str(found.tree_id), found.message) for each, found in commits.items()}
    return frozenset((each.place, *files.get(each, (each.commit,))) for each in inside)


async def bring_back(git: GitContext, common: Path, worktree: Path, commit: str, before: str) -> list[str]:
    """See `Git.bring_back_inside`."""
    wanted = await git.compute(inside_of, common, commit)
    overwritten: dict[str, Inside] = {}
    same: frozenset[tuple[str, ...]] = frozenset()
    if before and wanted:
        overwritten = {each.place: each for each in await git.compute(inside_of, common, before)}
        same = await git.compute(lambda: contents(common, before) & contents(common, commit))
    told: list[str] = []
    for each in wanted:
        if any(each.place == place for place, *_ in same):
            continue
        try:
            told += await _back(git, common, worktree, each, overwritten.get(each.place), new=not before)
        except (GitFailedError, GitBusyError, WorktreeChangedError) as error:
            told.append(f"{each.place} is a repository of its own and stays as it is: {error.message}")
    return told


async def _back(
    git: GitContext, common: Path, worktree: Path, wanted: Inside, kept: Inside | None, *, new: bool
) -> list[str]:
    place, commit = wanted.place, wanted.commit[:12]
    inner = await git.compute(git_dir_at, worktree / place)
    if inner is None:
        if wanted.kept:
            return await refilling.restore(git, common, worktree, wanted.commit, place)
        return [f"{place} was a repository of its own, at {commit}, and is not there: it is not back"]
    if inner.parent == common / "worktrees":
        return [f"{place} is a worktree of its own and stays as it is: {commit} has its files of then"]
    return await _files_back(git, common, worktree, inner, wanted, kept, new=new)


def inside_of(common: Path, commit: str) -> tuple[Inside, ...]:
    """What a checkpoint tells of. Blocks."""
    return of_message(open_repository(common)[commit].peel(pygit2.Commit).message)


async def _files_back(
    git: GitContext, common: Path, worktree: Path, inner: Path, wanted: Inside, kept: Inside | None, *, new: bool
) -> list[str]:
    """``kept`` is what the files were kept as; they are not overwritten where that is not what they are, unless all of the worktree is ``new``."""
    directory = worktree / wanted.place
    if wanted.kept:
        await copy_objects(git, common, inner, wanted.commit)
    trees = {
        await _tree(git, common if each.kept else inner, each.commit) for each in (kept, wanted) if each is not None
    }
    there = (f"--git-dir={inner}", f"--work-tree={directory}")
    async with git.worktree_lock(directory), private_index(git, inner) as index:
        environment = {"GIT_INDEX_FILE": str(index)}
        skipped = await add_all(git, directory, inner, index)
        if unread := [words for words in skipped if not is_unborn(words)]:
            raise GitFailedError("; ".join(unread))
        written = await git.process.write(directory, *there, "write-tree", "--missing-ok", environment=environment)
        now = written.decode().strip()
        if not new and now not in trees:
            raise GitFailedError("its files are not those that were kept: somebody works there")
        staged = [] if new else [*await staged_alone(git, directory, inner), *await git.compute(under_way, inner)]
        coming = await additions(git, directory, there, "diff-tree", now, wanted.commit)
        await refuse_repositories(git, directory, coming)
        if ignored := await git.compute(in_the_way, directory, coming):
            raise GitFailedError(f"files that it ignores are in the way: {named(sorted(ignored))}")
        await git.process.write(directory, *there, "read-tree", "-m", "-u", now, wanted.commit, environment=environment)
    return await _head_back(git, common, directory, inner, wanted, staged)


async def _tree(git: GitContext, repository: Path, commit: str) -> str:
    return await git.compute(lambda: str(open_repository(repository)[commit].peel(pygit2.Tree).id))


async def _head_back(
    git: GitContext, common: Path, directory: Path, inner: Path, wanted: Inside, held: Sequence[str]
) -> list[str]:
    """Have a HEAD that is on no branch stand where it did; what it had since is kept where no remote has it. ``held`` is what would be lost by that,
    in words."""
    head = await git.compute(lambda: head_of(open_repository(inner)))
    was = await git.compute(_head_of, common, wanted) if wanted.kept else wanted.commit
    if was in {"None", "", head.commit} or await absent(git, inner, [was]):
        return []
    if head.branch is not None or held:
        stays = f"stays on its branch {head.branch}" if head.branch is not None else f"stays where it is for {held[0]}"
        return [f"{wanted.place} {stays}: its files are those that it had on {was[:12]}"]
    there = (f"--git-dir={inner}", f"--work-tree={directory}")
    move = ("update-ref", "-m", "ramet: rewind", "--no-deref", "HEAD", was, str(head.commit))
    await git.process.write(directory, *there, *move)
    await git.process.write(directory, *there, "read-tree", was)
    await git.process.run(directory, *there, "update-index", "-q", "--refresh")
    return []


def _head_of(common: Path, kept: Inside) -> str:
    message = open_repository(common)[kept.commit].peel(pygit2.Commit).message
    return message.rpartition("\nHEAD ")[2].strip() if "\nHEAD " in message else ""
