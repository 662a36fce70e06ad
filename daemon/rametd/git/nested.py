"""Repositories inside a worktree: submodules, and those that somebody made there. A tree of ours can only point at them."""

import os
import shutil
import tempfile
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pygit2

from rametd.domain.errors import GitFailedError
from rametd.git.context import GitContext
from rametd.git.kept import quoted
from rametd.git.locks import DIRECTORY
from rametd.git.registrations import existing_git_dir
from rametd.git.repository import Head, RepositoryInfo, open_repository
from rametd.git.snapshot import WorktreeTree, write_commit, write_tree
from rametd.git.unread import Unread, unread


@dataclass(frozen=True, slots=True)
class Nested:
    """``kept``: (commit, place) of each whose files were copied; ``unread``: what else only they have."""

    kept: tuple[tuple[str, str], ...]
    unread: tuple[Unread, ...]


async def places(git: GitContext, worktree: Path, git_dir: Path) -> dict[str, str | None]:
    """Where submodules are, each with the recorded commit, and repositories that somebody made (None)."""
    there = (f"--git-dir={git_dir}", f"--work-tree={worktree}")
    staged = await git.process.read(worktree, *there, "ls-files", "--stage", "-z")
    others = await git.process.read(worktree, *there, "ls-files", "--others", "--exclude-standard", "-z")
    links = [record.split(b"\t", 1) for record in staged.split(b"\0") if record.startswith(b"160000 ")]
    made = {os.fsdecode(place.rstrip(b"/")): None for place in others.split(b"\0") if place.endswith(b"/")}
    return {os.fsdecode(place): fields.split(b" ")[1].decode() for fields, place in links} | made


async def keep(
    git: GitContext,
    repo: RepositoryInfo,
    worktree: Path,
    found: dict[str, str | None],
) -> Nested:
    """Copy into our repository what those have at the places that were ``found``, and those inside them.

    A submodule that stands clean at the recorded commit is left out, unless that commit was never pushed: it goes with the worktree.
    Commits that are on none of its remotes come along; those of a shallow or partial clone do not, and what else only its git directory has
    counts as not read.
    """
    kept: list[tuple[str, str]] = []
    lost: list[Unread] = []
    for place, recorded in found.items():
        inner = await git.compute(existing_git_dir, worktree / place)
        if inner is None:
            continue
        written = await write_tree(git, worktree / place, inner)
        repository = await git.compute(open_repository, inner)
        head = written.head.commit
        own, whole = await _own_commits(git, worktree / place, inner, written.head)
        refs = await _other_refs(git, worktree / place, inner, head)
        parents = [head] if head is not None and own and whole else []
        if whole and not inner.is_relative_to(worktree):
            # As a submodule's: its git directory goes with the worktree's, and is not in what would be kept aside.
            parents += dict.fromkeys(refs.values())
            refs = {}
        words = [f"and its {', '.join(refs)} would go with it"] if refs else []
        words += await _staged(git, worktree / place, inner)
        lost += [Unread(f"{place} is a repository of its own, {line}", place) for line in words]
        if own or parents or not await git.compute(_clean_at, repository, written, recorded):
            message = f"nested {quoted(place)}\n\nHEAD {head}\n"
            made = await git.compute(write_commit, repository, written.tree, message, parents)
            await _copy_objects(git, worktree / place, inner, repo.common_dir, made)
            kept.append((made, place))
        deeper = await keep(git, repo, worktree / place, await places(git, worktree / place, inner))
        below = [*unkept(written.skipped, [deep for _, deep in deeper.kept]), *deeper.unread]
        lost += [inside(place, each) for each in below]
        kept += [(made, f"{place}/{deep}") for made, deep in deeper.kept]
    return Nested(tuple(kept), tuple(lost))


def inside(place: str, what: Unread) -> Unread:
    """The same, as the worktree around ``place`` sees it."""
    return replace(
        what, words=f"in {place}: {what.words}", place=f"{place}/{what.place}" if what.place is not None else None
    )


def unkept(words: Sequence[str], kept: Collection[str]) -> list[Unread]:
    """Of what git said that it left out, what is not kept as a repository inside."""
    known = {f"'{place}/' does not have a commit checked out" for place in kept}
    return [unread(line) for line in words if line not in known]


async def _own_commits(git: GitContext, place: Path, inner: Path, head: Head) -> tuple[bool, bool]:
    """Whether what is checked out has commits that are on none of the repository's remotes, and whether all its history is there."""
    if head.commit is None:
        return False, True
    there = f"--git-dir={inner}"
    first = await git.process.read(
        place, there, "rev-list", "--max-count=1", head.commit, "--not", "--remotes", "--tags", "--"
    )
    shallow = await git.process.read(place, there, "rev-parse", "--is-shallow-repository")
    partial = await git.process.run(place, there, "config", "--get", "extensions.partialclone")
    return bool(first.strip()), shallow.strip() == b"false" and partial.returncode != 0


async def _other_refs(git: GitContext, place: Path, inner: Path, head: str | None) -> dict[str, str]:
    """The branches, tags and stash, each with its newest commit, that have commits which neither what is checked out has nor a remote."""
    there = f"--git-dir={inner}"
    known = ("--not", "--glob=refs/remotes", *([head] if head is not None else []), "--")
    listing = ("for-each-ref", "--format=%(refname)", "refs/heads", "refs/tags", "refs/stash")
    lost: dict[str, str] = {}
    for ref in os.fsdecode(await git.process.read(place, there, *listing)).splitlines():
        newest = (await git.process.run(place, there, "rev-list", "--max-count=1", ref, *known)).stdout.decode().strip()
        if newest:
            lost[ref.removeprefix("refs/").removeprefix("heads/")] = newest
    return lost


async def _staged(git: GitContext, place: Path, inner: Path) -> list[str]:
    """In words, what is staged and is not what the files are."""
    there = (f"--git-dir={inner}", f"--work-tree={place}")
    listing = ("status", "--porcelain", "-z", "--untracked-files=no", "--no-renames")
    status = await git.process.read(place, *there, *listing)
    staged = [
        os.fsdecode(line[3:]) for line in status.split(b"\0") if line[:1] in b"MA" and line[1:2] in b"MD" and line
    ]
    return [f"and what is staged there would go with it: {', '.join(staged)}"] if staged else []


def _clean_at(repository: pygit2.Repository, written: WorktreeTree, recorded: str | None) -> bool:
    head = written.head.commit
    return head is not None and head == recorded and str(repository[head].peel(pygit2.Tree).id) == written.tree


async def _copy_objects(git: GitContext, place: Path, source: Path, target: Path, commit: str) -> None:
    there = f"--git-dir={source}"
    pack = await git.process.read(
        place, there, "pack-objects", "--revs", "--stdout", "-q", stdin=f"{commit}\n".encode()
    )
    await git.process.write(target, "index-pack", "--stdin", stdin=pack)
    if not await git.compute(lambda: commit in open_repository(target)):
        raise GitFailedError(
            f"the files of {place} could not be copied", hint="commit or copy them by hand, then try again"
        )


async def restore(git: GitContext, repo: RepositoryInfo, worktree: Path, commit: str, place: str) -> list[str]:
    """The files of a repository inside the worktree, over those of a submodule that was filled again; what cannot be the same."""
    target = worktree / place
    await git.compute(lambda: target.mkdir(parents=True, exist_ok=True))
    there = (f"--git-dir={repo.common_dir}", f"--work-tree={target}")
    scratch = await git.compute(tempfile.mkdtemp, prefix="index-", dir=repo.common_dir / DIRECTORY)
    try:
        environment = {"GIT_INDEX_FILE": f"{scratch}/index"}
        await git.process.write(target, *there, "read-tree", commit, environment=environment)
        await git.process.write(target, *there, "checkout-index", "--all", "--force", environment=environment)
    finally:
        await git.compute(shutil.rmtree, scratch)
    own = await git.compute(lambda: bool(open_repository(repo.common_dir)[commit].peel(pygit2.Commit).parent_ids))
    if await git.compute(existing_git_dir, target) is not None:
        return [f"{place} had commits that were never pushed: {commit[:12]} has them"] if own else []
    words = f"its commits are in {commit[:12]}" if own else "its history is not"
    return [f"{place} was a repository of its own: its files are back, {words}"]
