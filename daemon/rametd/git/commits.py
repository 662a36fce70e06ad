"""Commits and trees in the object database: their contents, and the branches that have them."""

import os
import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, cast

import pygit2

from rametd.domain.errors import RefNotFoundError
from rametd.git.context import GitContext
from rametd.git.repository import RepositoryInfo, commit_exists, open_repository, peel, resolve_ref

_HOPS: Final = 8
"""Maximum length of a chain of links."""


@dataclass(frozen=True, slots=True)
class Tree:
    """The files of a commit. Paths are relative to the top. ``links``: the real path of a
    directory, by each symbolic link to it."""

    files: tuple[str, ...] = ()
    links: Mapping[str, str] = field(default_factory=dict)
    ignore_case: bool = False  # as the file system of the repository


def read_tree(repo: RepositoryInfo, commit: str) -> Tree:
    """Return all files of a commit, links included, in git's order. Blocks: 40,000 files take about
    a tenth of a second."""
    repository = open_repository(repo.common_dir)
    index = pygit2.Index()
    index.read_tree(repository[commit].peel(pygit2.Tree))
    files: list[str] = []
    targets: dict[str, str] = {}
    for entry in index:
        files.append(entry.path)
        if entry.mode == pygit2.enums.FileMode.LINK:
            targets[entry.path] = os.fsdecode(repository[entry.id].read_raw())
    return Tree(tuple(files), _directories(files, targets), ignores_case(repo.common_dir))


def ignores_case(common_dir: Path) -> bool:
    """Return whether the file system ignores letter case, as git recorded at the repository's
    creation. Blocks."""
    config = open_repository(common_dir).config
    return "core.ignorecase" in config and config.get_bool("core.ignorecase")


def _directories(files: list[str], targets: Mapping[str, str]) -> dict[str, str]:
    if not targets:
        return {}
    folders = {file[:at] for file in files for at, letter in enumerate(file) if letter == "/"}
    found = {}
    for link in targets:
        path = link
        for _ in range(_HOPS):
            if path not in targets:
                break
            path = posixpath.normpath(posixpath.join(posixpath.dirname(path), targets[path]))
        if path in folders:
            found[link] = path
    return found


def merge_base(repo: RepositoryInfo, one: str, other: str) -> str | None:
    """Return the merge base of two histories, or None; each is a branch, tag or commit. Raise
    RefNotFoundError. Blocks."""
    repository = open_repository(repo.common_dir)
    commits = (resolve_ref(repository, name).commit for name in (one, other))
    base = cast("pygit2.Oid | None", repository.merge_base(*commits))
    return str(base) if base is not None else None


async def reachable(git: GitContext, repo: RepositoryInfo, name: str) -> bool:
    """Return whether a branch, remote branch or tag reaches the commit. None reaches an object of
    another kind, such as a snapshot."""
    if not await git.compute(commit_exists, repo, name):
        return False
    output = await git.process.read(
        repo.common_dir,
        *("rev-list", "--max-count=1", name, "--not", "--branches", "--remotes", "--tags", "--"),
    )
    return not output.strip()


def holder(repo: RepositoryInfo, name: str, paths: Sequence[str], *, without: str) -> str:
    """Return a branch, remote branch or tag, except ``without``, that has all ``paths`` as in the
    commit or tree ``name``; else "".

    Raise RefNotFoundError if the repository does not have the commit or its files. Blocks.
    """
    repository = open_repository(repo.common_dir)
    try:
        files = repository[name].peel(pygit2.Tree)
        wanted = [(path, _entry(files, path)) for path in paths]
    except (KeyError, pygit2.GitError) as error:
        raise RefNotFoundError(f"{name} is incomplete: {error}", hint="`git fsck` lists what is missing") from error
    for ref in repository.references:
        if not ref.startswith(("refs/heads/", "refs/remotes/", "refs/tags/")) or ref == f"refs/heads/{without}":
            continue
        try:
            tree = repository.references[ref].peel(pygit2.Tree)
        except (KeyError, ValueError, pygit2.GitError):  # no commit, or lost
            continue
        if all(_entry(tree, path) == entry for path, entry in wanted):
            return ref.split("/", 2)[2]
    return ""


def _entry(tree: pygit2.Tree, path: str) -> tuple[str, int] | None:
    try:
        found = tree[path]
    except KeyError:
        return None
    return str(found.id), found.filemode


def files_between(repo: RepositoryInfo, old: str, new: str) -> int:
    """Return the number of files that differ between two commits. Blocks."""
    if old == new:
        return 0
    repository = open_repository(repo.common_dir)
    try:
        return len(repository.diff(pygit2.Oid(hex=old), pygit2.Oid(hex=new)))
    except KeyError as error:
        raise RefNotFoundError(f"{error.args[0]} is not there") from error


def file_at(repo: RepositoryInfo, commit: str, paths: tuple[str, ...]) -> bytes | None:
    """Return the first of ``paths`` that is a file in a commit, in any letter case, or None.
    Blocks."""
    tree = open_repository(repo.common_dir)[commit].peel(pygit2.Tree)
    return next((data for path in paths if (data := _blob(tree, path.split("/"))) is not None), None)


def files_at(repo: RepositoryInfo, revision: str, paths: tuple[str, ...], *, anywhere: str = "") -> dict[str, bytes]:
    """Return the files at ``paths``, and below those that are directories, by path; do not follow
    symbolic links within the commit.

    "HEAD" is that of the main worktree, or of the bare repository. An unknown revision has no
    files. ``anywhere``: also return the files below all directories of this name. Blocks.
    """
    repository = open_repository(repo.common_dir)
    commit = peel(repository, revision)
    if commit is None:
        return {}
    top = repository[commit].peel(pygit2.Tree)
    found: dict[str, bytes] = {}

    def collect(entry: pygit2.Object, path: str) -> None:
        if isinstance(entry, pygit2.Blob):
            found[path] = entry.data
        elif isinstance(entry, pygit2.Tree):
            for each in entry:
                collect(each, f"{path}/{each.name}")

    def descend(tree: pygit2.Tree, above: str) -> None:
        for each in tree:
            if isinstance(each, pygit2.Tree):
                if (each.name or "").casefold() == anywhere:
                    collect(each, f"{above}{each.name}")
                else:
                    descend(each, f"{above}{each.name}/")

    for path in paths:
        if path in top:
            collect(top[path], path)
    if anywhere:
        descend(top, "")
    return found


def _blob(tree: pygit2.Tree, parts: list[str]) -> bytes | None:
    first, *rest = parts
    for entry in tree:
        if (entry.name or "").lower() != first.lower():
            continue
        if rest and isinstance(entry, pygit2.Tree) and (data := _blob(entry, rest)) is not None:
            return data
        if not rest and isinstance(entry, pygit2.Blob):
            return entry.data
    return None


def object_exists(repo: RepositoryInfo, name: str) -> bool:
    """Return whether git has an object. Blocks."""
    return name in open_repository(repo.common_dir)


def tree_of(repo: RepositoryInfo, commit: str) -> str:
    """Return the tree of an existing commit. Blocks."""
    return str(open_repository(repo.common_dir)[commit].peel(pygit2.Tree).id)


class Commits:
    """Every method may raise the errors of `Git`."""

    def __init__(self, git: GitContext) -> None:
        self.exists = git.threaded(object_exists)
        self.merge_base = git.threaded(merge_base)
        self.reachable = git.bind(reachable)
        self.holder = git.threaded(holder)
        self.tree = git.threaded(tree_of)
        self.files = git.threaded(read_tree)
        self.file_at = git.threaded(file_at)
        self.files_at = git.threaded(files_at)
        self.files_between = git.threaded(files_between)
