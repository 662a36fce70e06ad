"""A worktree's tree from the tree that it had and the paths that changed: only the directories on the way to them are built anew.

What comes out is the tree that `snapshot.write_tree` would find by looking at every file. Where that cannot be promised, `ScanNeededError` is raised.
"""

import os
import stat
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pygit2

from rametd.domain.errors import GitFailedError
from rametd.git.context import GitContext
from rametd.git.loose import format_tree, is_there, parse_tree, write_loose
from rametd.git.repository import Head, head_of

LARGEST: Final = 32 << 20
"""Bytes of a file that git streams rather than we read."""
_CONVERTED: Final = ("filter", "ident", "working-tree-encoding")
_LINE_ENDS: Final = ("text", "eol", "crlf")
_TREE: Final = b"40000"
_LINK: Final = b"120000"

Entry = tuple[bytes, bytes]
"""As a tree has it: mode in octal, the object's name as bytes."""


class ScanNeededError(Exception):
    """Only git can tell what it would store; the words say of what."""


@dataclass(slots=True)
class Node:
    """A name that something below, or itself, has changed. ``renewed``: nothing of what the tree had below it stands any more."""

    children: "dict[str, Node]" = field(default_factory=dict)
    renewed: bool = False


@dataclass(frozen=True, slots=True)
class Known:
    """What the tree is made with: ``excluded`` paths are not to be in it, ``converts``: line ends are converted by configuration."""

    repository: pygit2.Repository
    objects: Path
    root: Path
    tree: str
    excluded: AbstractSet[str]
    converts: bool

    def entries(self, tree: bytes | None) -> dict[bytes, Entry]:
        """Of one tree; KeyError where the object is gone."""
        return {} if tree is None else parse_tree(self.repository.read(pygit2.Oid(raw=tree))[1])


@dataclass(frozen=True, slots=True)
class Made:
    """A tree, and what was checked out when its files were looked at."""

    tree: str
    head: Head


async def tree_of(
    git: GitContext, git_dir: Path, known: Known, dirty: AbstractSet[str], renewed: AbstractSet[str]
) -> Made:
    """The tree now. ``renewed`` directories are replaced as a whole: every file in them is in ``dirty``. Raises ScanNeededError."""
    top = _plant(dirty, renewed)
    blobs: dict[str, Entry] = {}

    def build() -> str:
        made = _build(known, bytes.fromhex(known.tree), top, "", blobs)
        return made.hex() if made is not None else write_loose(known.objects, "tree", b"")

    def all_of_it() -> tuple[Head, list[str], str]:
        head = head_of(known.repository)
        if not is_there(known.objects, known.tree):
            raise ScanNeededError("the tree was collected as garbage")
        if not top.children:
            return head, [], known.tree
        filtered = _store(known, top, blobs)
        return head, filtered, "" if filtered else build()

    head, filtered, tree = await git.compute(all_of_it)
    if filtered:
        await _by_git(git, known.root, git_dir, filtered, blobs)
        tree = await git.compute(build)
    return Made(tree, head)


def _plant(dirty: Iterable[str], renewed: Iterable[str]) -> Node:
    top = Node()
    for paths, whole in ((dirty, False), (renewed, True)):
        for path in paths:
            node = top
            for part in path.split("/"):
                node = node.children.setdefault(part, Node())
            node.renewed |= whole
    return top


def _store(known: Known, node: Node, blobs: dict[str, Entry], prefix: str = "") -> list[str]:
    """Write what can be stored as it is; returns the paths that go through a filter, with their modes in ``blobs``."""
    filtered: list[str] = []
    for name, child in node.children.items():
        path = prefix + name
        place = known.root / path
        try:
            status = place.lstat()
            if stat.S_ISDIR(status.st_mode):
                filtered += _store(known, child, blobs, f"{path}/")
            elif path in known.excluded:
                continue
            elif stat.S_ISLNK(status.st_mode):
                blobs[path] = _LINK, _blob(known, os.fsencode(place.readlink()))
            elif stat.S_ISREG(status.st_mode):
                mode = b"100755" if status.st_mode & stat.S_IXUSR else b"100644"
                data = _read(place)
                if _goes_through_git(known, path, data):
                    filtered.append(path)
                    blobs[path] = mode, b""
                else:
                    blobs[path] = mode, _blob(known, data)
            elif path in known.repository[known.tree].peel(pygit2.Tree):
                raise ScanNeededError(f"{path} is neither file nor link")
        except (FileNotFoundError, NotADirectoryError):
            continue  # gone, or going: `_build` leaves out what is not in `blobs`
        except OSError as error:
            raise ScanNeededError(f"{path}: {error.strerror}") from error
    return filtered


def _blob(known: Known, data: bytes) -> bytes:
    return bytes.fromhex(write_loose(known.objects, "blob", data))


def _read(place: Path) -> bytes:
    """A file's bytes. It may have become a link or a pipe, upon which one would wait for ever, since it was looked at."""
    descriptor = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > LARGEST:
            raise ScanNeededError(f"{place} is large, or no file")
        return file.read()


def _goes_through_git(known: Known, path: str, data: bytes) -> bool:
    def attribute(name: str) -> bool | str | None:
        return known.repository.get_attr(path, name)

    # Whether git converts line ends may depend on what its index has of the file. Without a CR there is nothing to convert.
    may_convert = b"\r" in data and attribute("text") is not False and attribute("crlf") is not False
    if may_convert and (known.converts or any(attribute(name) is not None for name in _LINE_ENDS)):
        raise ScanNeededError(f"line ends of {path}")
    return any(attribute(name) not in {None, False} for name in _CONVERTED)


async def _by_git(git: GitContext, worktree: Path, git_dir: Path, paths: list[str], blobs: dict[str, Entry]) -> None:
    if any("\n" in path or path.startswith('"') for path in paths):
        raise ScanNeededError("a path that git cannot be told")
    there = (f"--git-dir={git_dir}", f"--work-tree={worktree}")
    wanted = b"".join(os.fsencode(path) + b"\n" for path in paths)
    try:
        output = await git.process.write(worktree, *there, "hash-object", "-w", "--stdin-paths", stdin=wanted)
    except GitFailedError as error:  # a file that vanished, a filter that failed: the scan knows what to do
        raise ScanNeededError(error.message) from error
    for path, name in zip(paths, output.decode().split(), strict=True):
        blobs[path] = blobs[path][0], bytes.fromhex(name)


def _build(known: Known, old: bytes | None, node: Node, prefix: str, blobs: dict[str, Entry]) -> bytes | None:
    """The tree of one directory, None for an empty one: no tree holds those."""
    entries = known.entries(old)
    for name, child in node.children.items():
        path, key = prefix + name, os.fsencode(name)
        before = entries.pop(key, None)
        if path in blobs:
            entries[key] = blobs[path]
            continue
        if not _is_directory(known, path):
            continue
        stood = before[1] if before is not None and before[0] == _TREE and not child.renewed else None
        below = _build(known, stood, child, f"{path}/", blobs) if child.children or child.renewed else stood
        if below is not None:
            entries[key] = _TREE, below
    return bytes.fromhex(write_loose(known.objects, "tree", format_tree(entries))) if entries else None


def _is_directory(known: Known, path: str) -> bool:
    try:
        return stat.S_ISDIR((known.root / path).lstat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False
