"""Repositories inside a worktree: submodules, and those that somebody made there. A tree of ours can only point at them, so that their files become
commits of their own, `nested PLACE`, each with a line that tells what is checked out there (``HEAD COMMIT``), or that no repository is (``files``)."""

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pygit2

from rametd.domain.errors import GitFailedError, RepoNotFoundError, UnsupportedRepositoryError
from rametd.git.context import GitContext
from rametd.git.copying import copy_objects
from rametd.git.inside import git_dir_at, of_remotes, places
from rametd.git.kept import quoted
from rametd.git.registrations import existing_git_dir
from rametd.git.repository import Head, open_repository
from rametd.git.snapshot import WorktreeTree, has_no_links, scratch_index, write_commit, write_tree
from rametd.git.unread import Unread, add_all, hidden, is_unborn, unread


@dataclass(frozen=True, slots=True)
class Nested:
    """``kept``: (commit, place) of each whose files were copied; ``clean``: of each that stands as it is in a commit which is not only there.

    ``unread`` is what could not be kept. ``stood``: by place, the git directories of all that were looked at.
    """

    kept: tuple[tuple[str, str], ...] = ()
    clean: tuple[tuple[str, str], ...] = ()
    unread: tuple[Unread, ...] = ()
    stood: Mapping[str, Path] = field(default_factory=dict)


async def keep(
    git: GitContext, common: Path, worktree: Path, found: Mapping[str, str | None], *, brief: bool = False
) -> Nested:
    """Copy into our repository, at ``common``, what those have at the places that were ``found``, and those inside them.

    A submodule that stands clean at the recorded commit is left out, unless that commit was never pushed: it goes with the worktree.
    Commits that are on none of its remotes come along; those of a shallow or partial clone do not. What lies in the place of a submodule that is not
    filled is kept as mere files. ``brief`` is for those of which nothing goes: of one that is clean git is not asked more than that.
    """
    kept: list[tuple[str, str]] = []
    clean: list[tuple[str, str]] = []
    lost: list[Unread] = []
    stood: dict[str, Path] = {}
    for place, recorded in found.items():
        directory = worktree / place
        inner = await git.compute(git_dir_at, directory)
        # A directory that is no repository any more may still have all that it had.
        if (git_dir := inner or await git.compute(existing_git_dir, directory)) is not None:
            stood[place] = git_dir
        made: str | None = None
        skipped: tuple[str, ...] = ()
        if brief and inner is not None and await _stands_clean(git, common, directory, inner, recorded):
            clean.append((str(recorded), place))
            deeper = await _links(git, directory, inner)
        else:
            made, skipped, deeper = await _keep_one(git, common, directory, place, inner, recorded)
        kept += [(made, place)] if made is not None else []
        below = await keep(git, common, directory, deeper, brief=brief)
        unkept_below = [*unkept(skipped, [deep for _, deep in below.kept]), *below.unread]
        lost += [inside(place, each) for each in unkept_below]
        kept += [(commit, f"{place}/{deep}") for commit, deep in below.kept]
        clean += [(commit, f"{place}/{deep}") for commit, deep in below.clean]
        stood |= {f"{place}/{deep}": each for deep, each in below.stood.items()}
    return Nested(tuple(kept), tuple(clean), tuple(lost), stood)


async def _links(git: GitContext, directory: Path, inner: Path) -> Mapping[str, str | None]:
    """The submodules of one that is clean."""
    if await git.compute(has_no_links, inner / "index"):
        return {}
    return await places(git, directory, inner, untracked=False)


async def _keep_one(
    git: GitContext, common: Path, directory: Path, place: str, inner: Path | None, recorded: str | None
) -> tuple[str | None, tuple[str, ...], Mapping[str, str | None]]:
    """The commit that was made of it, what git said that it left out, and what is inside it."""
    if inner is None:
        return await _keep_files(git, common, directory, place)
    try:
        written = await write_tree(git, directory, inner)
        repository = await git.compute(open_repository, inner)
    except (GitFailedError, RepoNotFoundError, UnsupportedRepositoryError):
        return await _keep_files(git, common, directory, place)  # damaged, or of a kind that cannot be read here
    deeper = await places(git, directory, inner)
    own, whole = await _own_commits(git, common, directory, inner, written.head)
    if not own and await git.compute(_clean_at, repository, written, recorded):
        return None, written.skipped, deeper
    head = written.head.commit
    message = f"nested {quoted(place)}\n\nHEAD {head}\n"
    parents = [head] if head is not None and own and whole else []
    made = await git.compute(write_commit, repository, written.tree, message, parents)
    await copy_objects(git, inner, common, made)
    return made, written.skipped, deeper


async def _keep_files(
    git: GitContext, common: Path, directory: Path, place: str
) -> tuple[str | None, tuple[str, ...], Mapping[str, str | None]]:
    """Where no repository can tell, ours does."""
    if not await git.compute(lambda: directory.is_dir() and not directory.is_symlink() and any(directory.iterdir())):
        return None, (), {}
    async with scratch_index(git, common) as index:
        skipped = await add_all(git, directory, common, index)
        there = (f"--git-dir={common}", f"--work-tree={directory}")
        environment = {"GIT_INDEX_FILE": str(index)}
        tree = await git.process.write(directory, *there, "write-tree", "--missing-ok", environment=environment)
        staged = await git.process.read(directory, *there, "ls-files", "--stage", "-z", environment=environment)
    records = [record.partition(b"\t") for record in staged.split(b"\0") if record]
    links = [os.fsdecode(path) for fields, _, path in records if fields.startswith(b"160000 ")]
    unborn = [each.place for each in map(unread, skipped) if is_unborn(each.words) and each.place is not None]
    deeper: dict[str, str | None] = dict.fromkeys([*links, *unborn])
    if not records:
        return None, skipped, deeper
    message = f"nested {quoted(place)}\n\nfiles\n"
    repository = await git.compute(open_repository, common)
    return await git.compute(write_commit, repository, tree.decode().strip(), message, []), skipped, deeper


def inside(place: str, what: Unread) -> Unread:
    """The same, as the worktree around ``place`` sees it."""
    return replace(
        what, words=f"in {place}: {what.words}", place=f"{place}/{what.place}" if what.place is not None else None
    )


def unkept(words: Sequence[str], kept: Collection[str]) -> list[Unread]:
    """Of what git said that it left out, what is not kept as a repository inside."""
    known = {f"'{place}/'" for place in kept}
    return [unread(line) for line in words if not (is_unborn(line) and line.startswith(tuple(known)))]


async def _own_commits(git: GitContext, common: Path, directory: Path, inner: Path, head: Head) -> tuple[bool, bool]:
    """Whether what is checked out has commits that are on none of the repository's remotes, and whether all its history is there."""
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


def _clean_at(repository: pygit2.Repository, written: WorktreeTree, recorded: str | None) -> bool:
    head = written.head.commit
    return head is not None and head == recorded and str(repository[head].peel(pygit2.Tree).id) == written.tree


async def _stands_clean(git: GitContext, common: Path, directory: Path, inner: Path, recorded: str | None) -> bool:
    """Whether the recorded commit is checked out, all files are its, and a remote has it; what cannot be told is not."""
    if recorded is None:
        return False
    there = (f"--git-dir={inner}", f"--work-tree={directory}")
    listing = ("status", "--porcelain=v2", "--branch", "-z", "--untracked-files=normal", "--ignore-submodules=none")
    status = await git.process.run(directory, *there, *listing, environment={"GIT_OPTIONAL_LOCKS": "0"})
    lines = [line for line in status.stdout.split(b"\0") if line]
    if status.returncode != 0 or status.stderr or f"# branch.oid {recorded}".encode() not in lines:
        return False
    if any(not line.startswith(b"# ") for line in lines) or await hidden(git, directory, there, inner / "index"):
        return False
    return not await _is_own(git, common, directory, inner, recorded)
