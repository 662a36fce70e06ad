"""The one format of a snapshot: a git *tree* that a ref points at.

    files/        the worktree's files, untracked ones included, ignored ones not
    index/        staged content, if requested and different from HEAD
    unmerged/     blobs of the index that are not in ``index/``, by name: of conflicts, and of files after `git add -N`
    inner/        staged content of nested worktrees of the same repository, by name
    nested/0/     the files of the first nested repository that differs from its HEAD, and so on
    meta.json     head, branch, time, the nested repositories, and notes of the caller

A ref to a tree protects its objects from `git gc`, and `git log --all`, gitk and lazygit do not
show it. A tree cannot protect commits: separate refs below ``refs/ramet/commits/OWNER/`` pin those
that a snapshot needs (`pin`). The functions here block.
"""

import json
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pygit2

from rametd.git.loose import format_tree, replace_file, write_loose
from rametd.git.repository import common_dir, open_repository

CHECKPOINTS: Final = "refs/ramet/checkpoints/"
ARCHIVE: Final = "refs/ramet/archive/"
TRASH: Final = "refs/ramet/trash/"
COMMITS: Final = "refs/ramet/commits/"
"""Refs, by session, of commits that snapshots need and that no branch may have."""
_META: Final = "meta.json"
_TREE: Final = b"40000"
_FILE: Final = b"100644"


@dataclass(frozen=True, slots=True)
class Nested:
    """A nested repository. ``files`` is a tree of the outer repository, "" if the files are those
    of ``head``.

    ``head`` is "" without a commit. ``repository`` is False for files in an unpopulated submodule.
    ``clean``: ``files`` equal those of the head. ``own``: no remote has the head, whose commits
    were copied and pinned.
    """

    place: str
    head: str
    files: str = ""
    repository: bool = True
    own: bool = False
    clean: bool = False

    @property
    def holder(self) -> str:
        """Object of the outer repository with its files."""
        return self.files or self.head


@dataclass(frozen=True, slots=True)
class Snapshot:
    """``id`` is the tree's id. ``index`` is "" if the index equals HEAD or was not requested,
    ``head`` "" on an unborn branch, ``branch`` "" for a detached HEAD. ``skipped``: messages about
    unreadable files."""

    id: str
    files: str
    head: str
    branch: str
    time: float
    index: str = ""
    nested: tuple[Nested, ...] = ()
    skipped: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def contents(self) -> tuple[object, ...]:
        """Key that is equal for snapshots of equal worktrees."""
        return self.files, self.head, self.index, frozenset(self.nested)


def write(
    git_dir: Path,
    files: str,
    *,
    head: str,
    branch: str,
    index: str = "",
    unmerged: Iterable[str] = (),
    inner: Iterable[str] = (),
    nested: Iterable[Nested] = (),
    skipped: Iterable[str] = (),
    facts: Mapping[str, Any] | None = None,
) -> Snapshot:
    """Store the tree of a snapshot, without a ref."""
    common = common_dir(git_dir)
    objects = common / "objects"
    found, noted, now = tuple(nested), dict(facts or {}), time.time()
    lines = tuple(skipped)
    top = {b"files": (_TREE, bytes.fromhex(files))}
    if index:
        top[b"index"] = (_TREE, bytes.fromhex(index))
    if blobs := {name.encode(): (_FILE, bytes.fromhex(name)) for name in unmerged}:
        top[b"unmerged"] = (_TREE, bytes.fromhex(write_loose(objects, "tree", format_tree(blobs))))
    if staged := {name.encode(): (_TREE, bytes.fromhex(name)) for name in inner}:
        top[b"inner"] = (_TREE, bytes.fromhex(write_loose(objects, "tree", format_tree(staged))))
    trees = {str(n).encode(): (_TREE, bytes.fromhex(each.files)) for n, each in enumerate(found) if each.files}
    if trees:
        top[b"nested"] = (_TREE, bytes.fromhex(write_loose(objects, "tree", format_tree(trees))))
    meta: dict[str, Any] = {"version": 1, "head": head, "branch": branch, "time": now}
    if found:
        meta["nested"] = [_nested_meta(each) for each in found]
    if lines:
        meta["skipped"] = lines
    meta |= {"facts": noted} if noted else {}
    text = json.dumps(meta, indent=1).encode() + b"\n"
    top[_META.encode()] = (_FILE, bytes.fromhex(write_loose(objects, "blob", text)))
    made = write_loose(objects, "tree", format_tree(top))
    return Snapshot(made, files, head, branch, now, index, found, lines, noted)


def _nested_meta(each: Nested) -> dict[str, Any]:
    flags = {"own": True} if each.own else {}
    flags |= {"clean": True} if each.clean else {}
    kind = {} if each.repository else {"repository": False}
    return {"place": each.place, "head": each.head, **flags, **kind}


def read(git_dir: Path, name: str) -> Snapshot | None:
    """Return the snapshot of a ref or object id; None if it does not exist or is no snapshot."""
    repository = open_repository(common_dir(git_dir))
    if name.startswith("refs/"):
        reference = repository.references.get(name)
        if reference is None or not isinstance(reference.target, pygit2.Oid):
            return None
        name = str(reference.target)
    if len(name) != 40 or name not in repository:
        return None
    top = repository[name]
    return _read(repository, top) if isinstance(top, pygit2.Tree) else None


def _read(repository: pygit2.Repository, top: pygit2.Tree) -> Snapshot | None:
    names = {entry.name: entry for entry in top}
    if "files" not in names or _META not in names or str(names[_META].id) not in repository:
        return None
    meta = json.loads(repository[names[_META].id].read_raw())
    trees: dict[str, str] = {}
    if "nested" in names:
        trees = {str(entry.name): str(entry.id) for entry in repository[names["nested"].id].peel(pygit2.Tree)}
    nested = tuple(
        Nested(
            each["place"],
            each["head"],
            trees.get(str(n), ""),
            each.get("repository", True),
            each.get("own", False),
            each.get("clean", False),
        )
        for n, each in enumerate(meta.get("nested", ()))
    )
    return Snapshot(
        str(top.id),
        str(names["files"].id),
        meta["head"],
        meta["branch"],
        meta["time"],
        str(names["index"].id) if "index" in names else "",
        nested,
        tuple(meta.get("skipped", ())),
        meta.get("facts", {}),
    )


_PACKING_S: Final = 0.5
"""Seconds for which a git process that packs refs may hold the lock of one of them."""


def point(git_dir: Path, ref: str, name: str) -> None:
    """Set one of Ramet's refs to an object.

    Like git, write a lock file and rename it to the ref. libgit2 takes 2 ms, because it also
    searches for names that contain this one.
    """
    place = f"{common_dir(git_dir)}/{ref}"
    with suppress(OSError):  # libgit2 handles a lock that is held, and a directory in the way
        replace_file(f"{place}.lock", place, name.encode() + b"\n", 0o666)
        return
    repository = open_repository(git_dir)
    lock = common_dir(git_dir) / f"{ref}.lock"
    # Only the daemon writes this ref, in one task at a time. So the lock is a killed daemon's or,
    # if the ref exists, that of a git process that packs it for a moment.
    deadline = time.monotonic() + (_PACKING_S if ref in repository.references else 0)
    while lock.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    lock.unlink(missing_ok=True)
    repository.references.create(ref, pygit2.Oid(hex=name), force=True)


def pin(repository: pygit2.Repository, git_dir: Path, owner: str, commit: str) -> None:
    """Pin a commit and its ancestors for a session by the ref ``head``, which follows the session's
    line of commits.

    A line that the session abandoned (by an amend, a rebase or a reset) gets its own ref, named
    after its last commit.
    """
    head = repository.references.get(f"{COMMITS}{owner}/head")
    held = str(head.target) if head is not None else ""
    if held == commit:
        return
    if held and held in repository:
        if repository.descendant_of(held, commit):
            return
        if not repository.descendant_of(commit, held):
            point(git_dir, f"{COMMITS}{owner}/{held}", held)
    point(git_dir, f"{COMMITS}{owner}/head", commit)


def pin_others(git_dir: Path, owner: str, commits: Iterable[str]) -> None:
    """Pin further commits for a session, each by its own ref; skip ids that are missing or no
    commits."""
    names = dict.fromkeys(commits)
    repository = open_repository(git_dir) if names else None
    for commit in names:
        if repository is not None and commit in repository and isinstance(repository[commit], pygit2.Commit):
            point(git_dir, f"{COMMITS}{owner}/{commit}", commit)
