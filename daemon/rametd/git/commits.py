"""Commits and trees in the object database."""

from collections.abc import Sequence

from rametd.git.context import GitContext
from rametd.git.inventory import holder, reachable
from rametd.git.matrix import tree_of
from rametd.git.pool import files_between
from rametd.git.repository import RepositoryInfo, file_at, files_at, merge_base, open_repository
from rametd.git.tree import Tree, read_tree


class Commits:
    """Commits and trees in the object database. Every method may raise what those of `Git` raise."""

    def __init__(self, git: GitContext) -> None:
        self._git = git

    async def exists(self, repo: RepositoryInfo, name: str) -> bool:
        """Whether git has an object."""
        return await self._git.compute(lambda: name in open_repository(repo.common_dir))

    async def merge_base(self, repo: RepositoryInfo, one: str, other: str) -> str | None:
        """The commit at which two histories parted, None where they have none in common. Raises RefNotFoundError."""
        return await self._git.compute(merge_base, repo, one, other)

    async def reachable(self, repo: RepositoryInfo, commit: str) -> bool:
        """Whether a branch, remote branch or tag reaches the commit."""
        return await reachable(self._git, repo, commit)

    async def holder(self, repo: RepositoryInfo, name: str, paths: Sequence[str], *, without: str) -> str:
        """A branch, remote branch or tag, other than the branch ``without``, that has all of ``paths`` as the commit or tree ``name`` has them; "" where none has.

        Raises RefNotFoundError where the commit or its files are not in the repository.
        """
        return await self._git.compute(holder, repo, name, paths, without)

    async def tree(self, repo: RepositoryInfo, commit: str) -> str:
        """The tree of a commit that exists."""
        return await self._git.compute(tree_of, repo.common_dir, commit)

    async def files(self, repo: RepositoryInfo, commit: str) -> Tree:
        """The files of a commit, and where the symbolic links to directories in it lead."""
        return await self._git.compute(read_tree, repo, commit)

    async def file_at(self, repo: RepositoryInfo, commit: str, paths: tuple[str, ...]) -> bytes | None:
        """The first of these paths that is a file in a commit, whatever the case of its letters; None when none is."""
        return await self._git.compute(file_at, repo, commit, paths)

    async def files_at(
        self, repo: RepositoryInfo, revision: str, paths: tuple[str, ...], *, anywhere: str = ""
    ) -> dict[str, bytes]:
        """The files at ``paths`` of a revision, and below those that are directories there, by path.

        ``anywhere``: also the files below all directories of this name.
        """
        return await self._git.compute(files_at, repo, revision, paths, anywhere)

    async def files_between(self, repo: RepositoryInfo, old: str, new: str) -> int:
        """How many files differ between two commits."""
        return await self._git.compute(files_between, repo, old, new)
