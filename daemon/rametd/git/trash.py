"""Work that is about to go, kept as one commit under `refs/ramet/trash/<id>`.

The commit's tree is the worktree, uncommitted and untracked files included; its parents keep everything else reachable: the
branch's tip first, then a detached HEAD, then the files of repositories nested inside (which a tree can only point at).
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pygit2

from rametd.domain.errors import GitFailedError, RefNotFoundError
from rametd.git.context import GitContext
from rametd.git.registrations import existing_git_dir, locate
from rametd.git.repository import RepositoryInfo, branch_tip, open_repository
from rametd.git.snapshot import WorktreeTree, write_commit, write_tree

PREFIX: Final = "refs/ramet/trash/"


@dataclass(frozen=True, slots=True)
class TrashRecord:
    """What was kept. ``size`` is bytes on disk that nothing but the trash and the branch hold; ``skipped`` could not be read."""

    ref: str
    commit: str
    branch_commit: str | None
    size: int
    skipped: tuple[str, ...] = ()


async def trash(git: GitContext, repo: RepositoryInfo, identity: str, worktree: Path, branch: str) -> TrashRecord:
    """See `Git.trash`."""
    ref = PREFIX + identity
    tip = await git.compute(branch_tip, repo, branch)
    earlier = await git.compute(_read, repo, ref)
    written: WorktreeTree | None = None
    nested: list[tuple[str, str]] = []
    git_dir, why = await git.compute(locate, repo.common_dir, worktree)
    if git_dir is not None:
        written = await write_tree(git, worktree, git_dir)
        nested = await _keep_nested(git, repo, worktree, git_dir)
    elif earlier is not None:
        # An earlier run got as far as moving the directory aside; what it kept is more than what is left to see.
        return TrashRecord(ref, earlier, tip, await _size(git, repo, earlier, branch))
    if tip is None and written is None:
        raise RefNotFoundError(
            f"neither the worktree {worktree} nor the branch {branch} is left", hint="there is nothing to keep"
        )
    head = written.head.commit if written is not None else None
    candidates = [tip, head, *(commit for commit, _ in nested), earlier]
    parents = list(dict.fromkeys(commit for commit in candidates if commit is not None))

    def commit() -> str:
        repository = open_repository(repo.common_dir)
        tree = written.tree if written is not None else str(repository[str(tip)].peel(pygit2.Tree).id)
        if earlier is not None and _same(repository, earlier, tree, parents):
            return earlier
        lines = [f"trash: {branch} ({identity})", "", *(f"nested {made} {place}" for made, place in nested)]
        return write_commit(repository, tree, "\n".join(lines).rstrip() + "\n", parents)

    made = await git.compute(commit)
    await git.process.write(repo.common_dir, "update-ref", ref, made)
    skipped = (*(written.skipped if written is not None else ()), *([why] if why is not None else []))
    return TrashRecord(ref, made, tip, await _size(git, repo, made, branch), skipped)


async def drop_trash(git: GitContext, repo: RepositoryInfo, identity: str) -> None:
    """See `Git.drop_trash`."""
    await git.process.write(repo.common_dir, "update-ref", "-d", PREFIX + identity)


async def restore_files(git: GitContext, worktree: Path, git_dir: Path, commit: str) -> None:
    """See `Git.restore_files`."""
    there = (f"--git-dir={git_dir}", f"--work-tree={worktree}")
    await git.process.write(worktree, *there, "restore", f"--source={commit}", "--worktree", "--", ":/")


def _read(repo: RepositoryInfo, ref: str) -> str | None:
    reference = open_repository(repo.common_dir).references.get(ref)
    return str(reference.target) if reference is not None else None


def _same(repository: pygit2.Repository, earlier: str, tree: str, parents: list[str]) -> bool:
    commit = repository[earlier].peel(pygit2.Commit)
    return str(commit.tree.id) == tree and set(parents) <= {earlier, *(str(oid) for oid in commit.parent_ids)}


async def _size(git: GitContext, repo: RepositoryInfo, commit: str, branch: str) -> int:
    known = ("--not", f"--exclude={branch}", "--branches", "--remotes", "--tags", "--")
    output = await git.process.read(repo.common_dir, "rev-list", "--disk-usage", "--objects", commit, *known)
    return int(output)


async def _keep_nested(git: GitContext, repo: RepositoryInfo, worktree: Path, git_dir: Path) -> list[tuple[str, str]]:
    """(commit, place) for each repository inside the worktree whose files a tree of ours cannot hold, copied into ours.

    A submodule that stands clean at the recorded commit is left out. History that only a nested repository has is not copied.
    """
    kept: list[tuple[str, str]] = []
    for place, recorded in await _nested(git, worktree, git_dir):
        inner = await git.compute(existing_git_dir, worktree / place)
        if inner is None:
            continue
        written = await write_tree(git, worktree / place, inner)
        repository = await git.compute(open_repository, inner)
        if not await git.compute(_clean_at, repository, written, recorded):
            made = await git.compute(
                write_commit, repository, written.tree, f"nested {place}\n\nHEAD {written.head.commit}\n", []
            )
            await _copy_objects(git, worktree / place, inner, repo.common_dir, made)
            kept.append((made, place))
        kept += [(made, f"{place}/{deep}") for made, deep in await _keep_nested(git, repo, worktree / place, inner)]
    return kept


def _clean_at(repository: pygit2.Repository, written: WorktreeTree, recorded: str | None) -> bool:
    head = written.head.commit
    return head is not None and head == recorded and str(repository[head].peel(pygit2.Tree).id) == written.tree


async def _nested(git: GitContext, worktree: Path, git_dir: Path) -> list[tuple[str, str | None]]:
    """(place, recorded commit or None) of submodules, and of repositories that somebody made inside the worktree."""
    there = (f"--git-dir={git_dir}", f"--work-tree={worktree}")
    staged = await git.process.read(worktree, *there, "ls-files", "--stage", "-z")
    others = await git.process.read(worktree, *there, "ls-files", "--others", "--exclude-standard", "-z")
    links = [record.split(b"\t", 1) for record in staged.split(b"\0") if record.startswith(b"160000 ")]
    places: list[tuple[str, str | None]] = [
        (os.fsdecode(place), fields.split(b" ")[1].decode()) for fields, place in links
    ]
    return places + [(os.fsdecode(place.rstrip(b"/")), None) for place in others.split(b"\0") if place.endswith(b"/")]


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
