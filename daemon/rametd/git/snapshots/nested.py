"""Repositories inside a worktree: submodules, and those that an agent or a person created there.

The tree of a worktree only points at them. A snapshot therefore has the files of each nested
repository that differs from a commit of its remote, and copies of commits that none of its remotes
has. A restore writes the files and moves a detached HEAD; a branch that is checked out inside
stays.
"""

import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import pygit2

from rametd.domain.errors import (
    GitBusyError,
    GitFailedError,
    RepoNotFoundError,
    UnsupportedRepositoryError,
    WorktreeChangedError,
)
from rametd.domain.text import utf8
from rametd.git.context import GitContext, WorktreeTree
from rametd.git.file_trees import private_index, scratch_index, write_tree
from rametd.git.foreign import has_no_links
from rametd.git.inside import absent, copy_objects, git_dir_at, of_remotes, places, staged_only, under_way
from rametd.git.obstacles import additions, in_the_way, named, refuse_repositories
from rametd.git.process import at
from rametd.git.repository import Head, common_dir, head_of, open_repository
from rametd.git.snapshots.model import Nested, Snapshot
from rametd.git.unread import add_all, hidden, is_unborn, parse_unread

# ── capture ───────────────────────────────────────────────────────────────────────────────────────


async def capture(
    git: GitContext, worktree: Path, git_dir: Path, files: str, skipped: Sequence[str]
) -> tuple[tuple[Nested, ...], tuple[str, ...]]:
    """Return the nested repositories that the tree ``files`` only points at, and messages about
    unreadable files in them and those that git ``skipped``."""
    common = common_dir(git_dir)
    found = await git.compute(_linked, common, files, await places(git, worktree, git_dir))
    made: list[Nested] = []
    words: list[str] = []
    for place, recorded in found.items():
        try:
            inside, left = await _capture_one(git, common, worktree, place, recorded)
        except (GitFailedError, GitBusyError) as error:  # capture the other files nevertheless
            words.append(f"in {place}: {error.message}")
            continue
        made += inside
        words += left
    left_out = _not_captured(skipped, [each.place for each in made])
    return tuple(made), tuple(map(utf8, (*left_out, *words)))


def _linked(common: Path, tree: str, found: dict[str, str | None]) -> dict[str, str | None]:
    """Return the nested repositories whose files the tree does not have, and the commits that it
    points at."""
    top = open_repository(common)[tree].peel(pygit2.Tree)
    known = {place: top[place] for place in found if place in top}
    links = {place: str(entry.id) for place, entry in known.items() if not isinstance(entry, pygit2.Tree)}
    return {place: links.get(place) for place in found if place in links or place not in known}


async def _capture_one(
    git: GitContext, common: Path, worktree: Path, place: str, recorded: str | None
) -> tuple[list[Nested], list[str]]:
    """Capture one repository, and those inside it."""
    directory = worktree / place
    inner = await git.compute(git_dir_at, directory)
    made: Nested | None
    skipped: tuple[str, ...] = ()
    deeper: Mapping[str, str | None]
    if inner is not None and recorded is not None and await _is_clean(git, common, directory, inner, recorded):
        made = Nested(place, recorded)
        no_links = await git.compute(has_no_links, inner / "index")
        deeper = {} if no_links else await places(git, directory, inner, untracked=False)
    else:
        made, skipped, deeper = await _copy(git, common, directory, place, inner, recorded)
    found = [made] if made is not None else []
    words: list[str] = []
    for name, link in deeper.items():
        inside, left = await _capture_one(git, common, worktree, f"{place}/{name}", link)
        found += inside
        words += left
    known = [each.place.removeprefix(f"{place}/") for each in found if each.place != place]
    return found, [*(f"in {place}: {line}" for line in _not_captured(skipped, known)), *words]


async def _copy(
    git: GitContext, common: Path, directory: Path, place: str, inner: Path | None, recorded: str | None
) -> tuple[Nested | None, tuple[str, ...], Mapping[str, str | None]]:
    """Copy the files, and commits that exist nowhere else, to the outer repository; also return
    git's messages about skipped paths, and nested repositories."""
    if inner is None:
        return await _copy_files(git, common, directory, place)
    try:
        written = await write_tree(git, directory, inner)
        repository = await git.compute(open_repository, inner)
    except (GitFailedError, RepoNotFoundError, UnsupportedRepositoryError):
        return await _copy_files(git, common, directory, place)  # damaged, or of an unsupported kind
    deeper = await places(git, directory, inner)
    own, complete = await _own_commits(git, common, directory, inner, written.head)
    head = written.head.commit or ""
    if not own and await git.compute(_is_unchanged, repository, written, recorded):
        return Nested(place, head), written.skipped, deeper
    copied = [written.tree, *([head] if own and complete else [])]
    await copy_objects(git, inner, common, *copied)
    clean = await git.compute(_is_unchanged, repository, written, head)
    return Nested(place, head, written.tree, own=head in copied, clean=clean), written.skipped, deeper


async def _copy_files(
    git: GitContext, common: Path, directory: Path, place: str
) -> tuple[Nested | None, tuple[str, ...], Mapping[str, str | None]]:
    """Read the files with the outer repository: the inner one is unreadable."""
    if not await git.compute(lambda: directory.is_dir() and not directory.is_symlink() and any(directory.iterdir())):
        return None, (), {}
    async with scratch_index(git, common) as index:
        skipped = await add_all(git, directory, common, index)
        there = at(common, directory)
        environment = {"GIT_INDEX_FILE": str(index)}
        tree = await git.process.write(directory, *there, "write-tree", "--missing-ok", environment=environment)
        staged = await git.process.read(directory, *there, "ls-files", "--stage", "-z", environment=environment)
    records = [record.partition(b"\t") for record in staged.split(b"\0") if record]
    links = [os.fsdecode(path) for fields, _, path in records if fields.startswith(b"160000 ")]
    unborn = [each.place for each in map(parse_unread, skipped) if is_unborn(each.words) and each.place is not None]
    deeper: dict[str, str | None] = dict.fromkeys([*links, *unborn])
    made = Nested(place, "", tree.decode().strip(), repository=False) if records else None
    return made, skipped, deeper


def _not_captured(words: Sequence[str], captured: Collection[str]) -> list[str]:
    """Return git's messages about skipped paths, except those about separately captured
    repositories."""
    known = tuple(f"'{place}/'" for place in captured)
    return [line for line in words if not (is_unborn(line) and line.startswith(known))]


async def _own_commits(git: GitContext, common: Path, directory: Path, inner: Path, head: Head) -> tuple[bool, bool]:
    """Return whether HEAD has commits that none of the repository's remotes has, and whether its
    history is complete."""
    if head.commit is None:
        return False, True
    there = f"--git-dir={inner}"
    shallow = await git.process.read(directory, there, "rev-parse", "--is-shallow-repository")
    partial = await git.process.run(directory, there, "config", "--get", "extensions.partialclone")
    own = await _is_own(git, common, directory, inner, head.commit)
    return own, shallow.strip() == b"false" and partial.returncode != 0


async def _is_own(git: GitContext, common: Path, directory: Path, inner: Path, commit: str) -> bool:
    known = await git.compute(of_remotes, inner)
    known += ("--branches", "--tags") if inner.parent == common / "worktrees" else ()
    asked = ("rev-list", "--ignore-missing", "--max-count=1", commit, "--not", *known, "--")
    return bool((await git.process.read(directory, f"--git-dir={inner}", *asked)).strip())


def _is_unchanged(repository: pygit2.Repository, written: WorktreeTree, recorded: str | None) -> bool:
    head = written.head.commit
    return head is not None and head == recorded and str(repository[head].peel(pygit2.Tree).id) == written.tree


async def _is_clean(git: GitContext, common: Path, directory: Path, inner: Path, recorded: str) -> bool:
    """Return whether the recorded commit is surely checked out without changes, and a remote has
    it."""
    there = at(inner, directory)
    listing = ("status", "--porcelain=v2", "--branch", "-z", "--untracked-files=normal", "--ignore-submodules=none")
    status = await git.process.run(directory, *there, *listing, environment={"GIT_OPTIONAL_LOCKS": "0"})
    lines = [line for line in status.stdout.split(b"\0") if line]
    if status.returncode != 0 or status.stderr or f"# branch.oid {recorded}".encode() not in lines:
        return False
    if any(not line.startswith(b"# ") for line in lines) or await hidden(git, directory, there, inner / "index"):
        return False
    return not await _is_own(git, common, directory, inner, recorded)


# ── restore ───────────────────────────────────────────────────────────────────────────────────────


async def restore(
    git: GitContext, common: Path, worktree: Path, wanted: Snapshot, before: Snapshot | None = None
) -> list[str]:
    """Write the files of the nested repositories; return a line for each difference.

    ``before`` is a snapshot of the present files; files that it does not have stay. Without one the
    worktree is new.
    """
    overwritten = {each.place: each for each in before.nested} if before is not None else {}
    warnings: list[str] = []
    for each in wanted.nested:
        if overwritten.get(each.place) == each:
            continue
        try:
            warnings += await _restore_one(git, common, worktree, each, overwritten.get(each.place), new=before is None)
        except (GitFailedError, GitBusyError, WorktreeChangedError) as error:
            warnings.append(f"{each.place} is a separate repository and stays unchanged: {error.message}")
    return [utf8(line) for line in warnings]


async def _restore_one(
    git: GitContext, common: Path, worktree: Path, wanted: Nested, before: Nested | None, *, new: bool
) -> list[str]:
    place = wanted.place
    inner = await git.compute(git_dir_at, worktree / place)
    if inner is None:
        if wanted.files:
            return await _write_missing(git, common, worktree, wanted)
        return [f"{place} was a separate repository, at {wanted.head[:12]}, and is not there: it is not restored"]
    if inner.parent == common / "worktrees":
        return [f"{place} is a separate worktree and stays unchanged: {wanted.holder[:12]} has its earlier files"]
    return await _write_over(git, common, worktree, inner, wanted, before, new=new)


async def _write_missing(git: GitContext, common: Path, worktree: Path, wanted: Nested) -> list[str]:
    """Write the files of a repository that no longer exists. An existing file that differs
    stays."""
    target = worktree / wanted.place
    await git.compute(lambda: target.mkdir(parents=True, exist_ok=True))
    there = at(common, target)
    async with scratch_index(git, common) as index:
        environment = {"GIT_INDEX_FILE": str(index)}
        await git.process.write(target, *there, "read-tree", wanted.files, environment=environment)
        await git.process.run(target, *there, "update-index", "-q", "--refresh", environment=environment)
        changed = ("diff-files", "--name-only", "--ignore-submodules=all", "-z")
        listed = set((await git.process.read(target, *there, *changed, environment=environment)).split(b"\0")[:-1])
        foreign = await git.compute(lambda: {each for each in listed if os.path.lexists(target / os.fsdecode(each))})
        paths = b"".join(path + b"\0" for path in sorted(listed - foreign))
        await git.process.write(target, *there, "checkout-index", "-z", "--stdin", stdin=paths, environment=environment)
    warnings = []
    if foreign:
        names = named([os.fsdecode(path) for path in sorted(foreign)])
        warnings.append(
            f"{names} in {wanted.place} was there already and stays: {wanted.files[:12]} has what was captured"
        )
    if wanted.repository:
        words = f"its commits are in {wanted.head[:12]}" if wanted.own else "its history is not"
        warnings.append(f"{wanted.place} was a separate repository: its files are restored, {words}")
    return warnings


async def _write_over(
    git: GitContext, common: Path, worktree: Path, inner: Path, wanted: Nested, before: Nested | None, *, new: bool
) -> list[str]:
    """Write files of an existing repository. Overwrite none that differs from ``before``, unless
    the worktree is ``new``."""
    directory = worktree / wanted.place
    if wanted.files:
        await copy_objects(git, common, inner, wanted.files, *([wanted.head] if wanted.own else []))
    target = wanted.files or wanted.head
    known = {
        each.files or await _tree(git, inner, each.head)
        for each in (before, wanted)
        if each is not None and each.holder
    }
    there = at(inner, directory)
    async with git.worktree_lock(directory), private_index(git, inner) as index:
        environment = {"GIT_INDEX_FILE": str(index)}
        skipped = await add_all(git, directory, inner, index)
        if words := [line for line in skipped if not is_unborn(line)]:
            raise GitFailedError("; ".join(words))
        written = await git.process.write(directory, *there, "write-tree", "--missing-ok", environment=environment)
        now = written.decode().strip()
        if not new and now not in known:
            raise GitFailedError("its files have changed since they were captured")
        held = [] if new else [*await staged_only(git, directory, inner), *await git.compute(under_way, inner)]
        coming = await additions(git, directory, there, "diff-tree", now, target)
        await refuse_repositories(git, directory, coming)
        if ignored := await git.compute(in_the_way, directory, coming):
            raise GitFailedError(f"files that it ignores are in the way: {named(sorted(ignored))}")
        await git.process.write(directory, *there, "read-tree", "-m", "-u", now, target, environment=environment)
    return await _move_head(git, directory, inner, wanted, held)


async def _tree(git: GitContext, repository: Path, commit: str) -> str:
    return await git.compute(lambda: str(open_repository(repository)[commit].peel(pygit2.Tree).id))


async def _move_head(git: GitContext, directory: Path, inner: Path, wanted: Nested, held: Sequence[str]) -> list[str]:
    """Move a detached HEAD back. ``held``: descriptions of what that would lose."""
    head = await git.compute(lambda: head_of(open_repository(inner)))
    if wanted.head in {"", head.commit} or await absent(git, inner, [wanted.head]):
        return []
    if head.branch is not None or held:
        stays = f"stays on its branch {head.branch}" if head.branch is not None else f"stays where it is for {held[0]}"
        return [f"{wanted.place} {stays}: its files are those that it had on {wanted.head[:12]}"]
    there = at(inner, directory)
    move = ("update-ref", "-m", "ramet: rewind", "--no-deref", "HEAD", wanted.head, str(head.commit))
    await git.process.write(directory, *there, *move)
    await git.process.write(directory, *there, "read-tree", wanted.head)
    await git.process.run(directory, *there, "update-index", "-q", "--refresh")
    return []
