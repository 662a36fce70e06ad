"""Commits and trees in the object database."""

from collections.abc import Sequence

from rametd.git.context import GitContext
from rametd.git.inventory import holder, reachable
from rametd.git.matrix import tree_of
from rametd.git.pool import files_between
from rametd.git.repository import RepositoryInfo, file_at, files_at, merge_base, open_repository
from rametd.git.tree import Tree, read_tree


class Commits:
    """Commits and trees in the object database. Every method may raise the errors of `Git`."""

    def __init__(self, git: GitContext) -> None:
        self._git = git

    async def exists(self, repo: RepositoryInfo, name: str) -> bool:
        """Return whether git has an object."""
        return await self._git.compute(lambda: name in open_repository(repo.common_dir))

    async def merge_base(self, repo: RepositoryInfo, one: str, other: str) -> str | None:
        """Return the merge base of two histories, or None. Raise RefNotFoundError."""
        return await self._git.compute(merge_base, repo, one, other)

    async def reachable(self, repo: RepositoryInfo, commit: str) -> bool:
        """Return whether a branch, remote branch or tag reaches the commit."""
        return await reachable(self._git, repo, commit)

    async def holder(self, repo: RepositoryInfo, name: str, paths: Sequence[str], *, without: str) -> str:
        """Return a branch, remote branch or tag, except ``without``, that has all ``paths`` as in the commit or tree ``name``; else "".

        Raise RefNotFoundError if the repository does not have the commit or its files.
        """
        return await self._git.compute(holder, repo, name, paths, without)

    async def tree(self, repo: RepositoryInfo, commit: str) -> str:
        """Return the tree of an existing commit."""
        return await self._git.compute(tree_of, repo.common_dir, commit)

    async def files(self, repo: RepositoryInfo, commit: str) -> Tree:
        """Return the files of a commit, and the targets of its symbolic links to directories."""
        return await self._git.compute(read_tree, repo, commit)

    async def file_at(self, repo: RepositoryInfo, commit: str, paths: tuple[str, ...]) -> bytes | None:
        """Return the first of these paths that is a file in a commit, in any letter case, or None."""
        return await self._git.compute(file_at, repo, commit, paths)

    async def files_at(
        self, repo: RepositoryInfo, revision: str, paths: tuple[str, ...], *, anywhere: str = ""
    ) -> dict[str, bytes]:
        """Return the files of a revision at ``paths``, and below those that are directories, by path.

        ``anywhere``: also the files below all directories of this name.
        """
        return await self._git.compute(files_at, repo, revision, paths, anywhere)

    async def files_between(self, repo: RepositoryInfo, old: str, new: str) -> int:
        """Return the number of files that differ between two commits."""
        return await self._git.compute(files_between, repo, old, new)
