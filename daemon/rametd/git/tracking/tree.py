"""Compute a worktree's tree from the former tree and the changed paths: only directories above
these are built again.

The result equals that of `file_trees.write_tree`, which reads every file. If that is not certain,
raise `ScanNeededError`.
"""

import os
import re
import stat
from collections.abc import Container, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pygit2

from rametd.domain.errors import GitFailedError
from rametd.git.context import GitContext
from rametd.git.loose import format_tree, is_there, parse_tree, write_loose
from rametd.git.process import at, path_lines
from rametd.git.repository import Head, common_dir, head_of
from rametd.git.sharing import share_as_asked
from rametd.git.tracking.attributes import AS_IS, Conversion

LARGEST: Final = 32 << 20
"""Maximum bytes of a file to read here; git streams larger ones."""
_REFUSED: Final = re.compile(r"(?:^|[/\\])(?:\.git|git~[0-9])[ .]*(?:$|[/\\:])", re.IGNORECASE)
"""Names that some file system considers equal to ``.git``, in a path without non-ASCII characters.
Git adds none of these to an index."""
_REFUSED_LINK: Final = re.compile(r"(?:^|[/\\])(?:\.gitm|gi[^/]*~)[^/]*$", re.IGNORECASE)
"""The same for ``.gitmodules``, which must not be a link."""
_TREE: Final = b"40000"
_LINK: Final = b"120000"

Entry = tuple[bytes, bytes]
"""Entry of a tree: mode in octal, the object's id as bytes."""


class ScanNeededError(Exception):
    """Raised when only git can compute the tree; the message names the path."""


class NewLinkError(ScanNeededError):
    """Raised for an unknown hard link: a write through one name causes no event for the other."""


@dataclass(slots=True)
class Node:
    """A path component that has changed, itself or below it. ``renewed``: its former content is
    invalid."""

    children: "dict[str, Node]" = field(default_factory=dict)
    renewed: bool = False


@dataclass(frozen=True, slots=True)
class Known:
    """Input: the former tree. ``excluded``: ignored paths. ``converts``: the configuration converts
    line ends. ``conversions``: of files that are not stored unchanged. ``links``: files that are
    known to have several names.
    """

    repository: pygit2.Repository
    objects: Path
    root: Path
    tree: str
    excluded: AbstractSet[str]
    converts: bool
    conversions: Mapping[str, Conversion]
    links: Container[str]

    def entries(self, tree: bytes | None) -> dict[bytes, Entry]:
        """Return the entries of one tree. Raise KeyError if the object is gone."""
        return {} if tree is None else parse_tree(self.repository.read(pygit2.Oid(raw=tree))[1])


@dataclass(frozen=True, slots=True)
class BuiltTree:
    """A tree, and HEAD when its files were read."""

    tree: str
    head: Head


async def tree_of(
    git: GitContext, git_dir: Path, known: Known, dirty: AbstractSet[str], renewed: AbstractSet[str]
) -> BuiltTree:
    """Return the present tree. Every file in ``renewed`` directories, which were replaced, is in
    ``dirty``. Raise ScanNeededError."""
    top = _plant(dirty, renewed)
    blobs: dict[str, Entry] = {}

    def build() -> str:
        share_as_asked(common_dir(git_dir))
        return _build(known, top, blobs)

    def build_all() -> tuple[Head, list[str], str]:
        refused = next((path for path in dirty if _REFUSED.search(_ascii(path))), None)
        if refused is not None:
            raise ScanNeededError(f"git refuses the name {refused}")
        share_as_asked(common_dir(git_dir))
        head = head_of(known.repository)
        if not is_there(known.objects, known.tree):
            raise ScanNeededError("the tree was collected as garbage")
        if not top.children:
            return head, [], known.tree
        filtered = _store(known, top, blobs)
        return head, filtered, "" if filtered else build()

    head, filtered, tree = await git.compute(build_all)
    if filtered:
        await _by_git(git, known.root, git_dir, filtered, blobs)
        tree = await git.compute(build)
    return BuiltTree(tree, head)


def _plant(dirty: Iterable[str], renewed: Iterable[str]) -> Node:
    top = Node()
    for paths, renewing in ((dirty, False), (renewed, True)):
        for path in paths:
            node = top
            for part in path.split("/"):
                node = node.children.setdefault(part, Node())
            node.renewed |= renewing
    return top


def _store(known: Known, top: Node, blobs: dict[str, Entry]) -> list[str]:
    """Write files that are stored as they are; return the paths that go through a filter, with
    their modes in ``blobs``. Not recursive, for any depth."""
    filtered: list[str] = []
    waiting = [(top, "")]
    while waiting:
        node, prefix = waiting.pop()
        for name, child in node.children.items():
            path = prefix + name
            place = f"{known.root}/{path}"  # text, as a `Path` takes as long as the system call
            try:
                status = os.lstat(place)
                if stat.S_ISDIR(status.st_mode):
                    waiting.append((child, f"{path}/"))
                elif path in known.excluded:
                    continue
                elif stat.S_ISLNK(status.st_mode):
                    if _REFUSED_LINK.search(_ascii(path)):
                        raise ScanNeededError(f"git may refuse the link {path}")
                    blobs[path] = _LINK, _blob(known, os.fsencode(os.readlink(place)))  # noqa: PTH115 - text, as above
                elif stat.S_ISREG(status.st_mode):
                    mode = b"100755" if status.st_mode & stat.S_IXUSR else b"100644"
                    data = _read(place, known_link=path in known.links)
                    if _needs_git(known, path, data):
                        filtered.append(path)
                        blobs[path] = mode, b""
                    else:
                        blobs[path] = mode, _blob(known, data)
                elif path in known.repository[known.tree].peel(pygit2.Tree):
                    raise ScanNeededError(f"{path} is neither file nor link")
            except (FileNotFoundError, NotADirectoryError):
                continue  # deleted meanwhile: `_build` skips paths that are not in `blobs`
            except OSError as error:
                raise ScanNeededError(f"{path}: {error.strerror}") from error
    return filtered


def _ascii(path: str) -> str:
    """Drop non-ASCII characters, some of which some file systems ignore."""
    return path.encode("ascii", "ignore").decode()


def _blob(known: Known, data: bytes) -> bytes:
    return bytes.fromhex(write_loose(known.objects, "blob", data))


def _read(place: str, *, known_link: bool) -> bytes:
    """Read a file. Since its status was read, it may have become a link, or a pipe that would
    block."""
    descriptor = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > LARGEST:
            raise ScanNeededError(f"{place} is large, or no file")
        if status.st_nlink > 1 and not known_link:
            raise NewLinkError(f"{place} has another name")
        return file.read()


def _needs_git(known: Known, path: str, data: bytes) -> bool:
    conversion = known.conversions.get(path, AS_IS)
    # Whether git converts line ends may depend on its index. Without a CR there is nothing to
    # convert, unless a filter adds one.
    may_convert = conversion.line_ends is not False and (known.converts or conversion.line_ends)
    if may_convert and (b"\r" in data or conversion.filtered):
        raise ScanNeededError(f"line ends of {path}")
    return conversion.filtered


async def _by_git(git: GitContext, worktree: Path, git_dir: Path, paths: list[str], blobs: dict[str, Entry]) -> None:
    there, wanted = at(git_dir, worktree), path_lines(map(os.fsencode, paths))
    try:
        output = await git.process.write(worktree, *there, "hash-object", "-w", "--stdin-paths", stdin=wanted)
    except GitFailedError as error:  # a file vanished or a filter failed: the scan handles it
        raise ScanNeededError(error.message) from error
    for path, name in zip(paths, output.decode().split(), strict=True):
        blobs[path] = blobs[path][0], bytes.fromhex(name)


@dataclass(frozen=True, slots=True)
class _Directory:
    """A directory whose tree is to be written; ``above`` is None for the top."""

    entries: dict[bytes, Entry]
    above: "_Directory | None" = None
    name: bytes = b""


def _build(known: Known, top: Node, blobs: dict[str, Entry]) -> str:
    """Write the trees of all directories above changes, the deepest first. Return the id of the top
    tree. Not recursive: the depth is unlimited."""
    made = [_Directory(known.entries(bytes.fromhex(known.tree)))]
    waiting = [(top, "", made[0])]
    while waiting:
        node, prefix, directory = waiting.pop()
        for name, child in node.children.items():
            path, key = prefix + name, os.fsencode(name)
            before = directory.entries.pop(key, None)
            if path in blobs:
                directory.entries[key] = blobs[path]
                continue
            if not _is_directory(known, path):
                continue
            stood = before[1] if before is not None and before[0] == _TREE and not child.renewed else None
            if child.children or child.renewed:
                below = _Directory(known.entries(stood), directory, key)
                made.append(below)
                waiting.append((child, f"{path}/", below))
            elif stood is not None:
                directory.entries[key] = _TREE, stood
    for directory in made[:0:-1]:
        if directory.entries and directory.above is not None:  # trees have no empty directories
            directory.above.entries[directory.name] = _TREE, bytes.fromhex(_tree(known, directory))
    return _tree(known, made[0])


def _tree(known: Known, directory: _Directory) -> str:
    return write_loose(known.objects, "tree", format_tree(directory.entries))


def _is_directory(known: Known, path: str) -> bool:
    try:
        return stat.S_ISDIR(os.lstat(f"{known.root}/{path}").st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False
