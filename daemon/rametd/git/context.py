"""Shared parts of the git layer: the git binary, threads for libgit2, locks."""

import asyncio
import copy
import functools
import re
from collections.abc import Callable, Collection, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Concatenate, Final, ParamSpec, Protocol, TypeVar
from weakref import WeakValueDictionary

import pygit2

from rametd.domain.errors import GitFailedError
from rametd.git.locks import RepositoryLocks
from rametd.git.process import GitProcess
from rametd.git.registrations import verify_worktree
from rametd.git.repository import Head, common_dir
from rametd.git.sharing import have_own_umask
from rametd.platform import files as durability
from rametd.platform.watches import Watches

P = ParamSpec("P")
T = TypeVar("T")
_OBJECT: Final = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")

# libgit2 refuses a repository with an extension that is not enabled here. It reads objects of a
# partial clone that exist locally, and fails on missing ones, which git itself fetches when it
# fills a working tree.
_EXTENSIONS = ("partialclone",)


@dataclass(frozen=True, slots=True)
class WorktreeTree:
    """The tree of a worktree's files. ``skipped``: git's message about each unreadable file and
    directory. ``plain``: the tree points at no nested repository.
    """

    tree: str
    head: Head
    skipped: tuple[str, ...]
    plain: bool = False


class TreeSource(Protocol):
    """A tracker: returns the tree of a worktree's files without reading every file."""

    async def tree(self) -> WorktreeTree: ...


class GitContext:
    """Shared by all operations; `Git` creates one."""

    def __init__(
        self,
        threads: int,
        environment: Mapping[str, str],
        lock_timeout: float,
        tree_sources: Mapping[Path, TreeSource] = MappingProxyType({}),
    ) -> None:
        pygit2.settings.set_extensions([*_EXTENSIONS])
        self.trusted = dict[
            Path, Collection[str]
        ]()  # by registered repository: digests of the items that the person trusts
        self.process = GitProcess(environment, lock_timeout, self.trusted)
        self.locks = RepositoryLocks(lock_timeout)
        # Checkouts run outside the repository's lock. More checkouts at once than threads would
        # only slow each down.
        self.checkouts = asyncio.Semaphore(threads)
        self.tree_sources = tree_sources  # by worktree, resolved
        self.watches = Watches()
        self._worktree_locks: WeakValueDictionary[Path, asyncio.Lock] = WeakValueDictionary()
        self._threads = ThreadPoolExecutor(threads, "git", initializer=have_own_umask)
        self._deleter = ThreadPoolExecutor(1, thread_name_prefix="git-delete")
        self._flushers = ThreadPoolExecutor(threads, thread_name_prefix="git-flush")

    def in_background(self) -> "GitContext":
        """Return a context whose git processes have the lowest priority."""
        quiet = copy.copy(self)
        quiet.process = self.process.in_background()
        return quiet

    async def verified(self, worktree: Path, branch: str | None) -> Path:
        """Return the git directory of a worktree of a registered repository. Raise
        WorktreeChangedError, see `verify_worktree`."""
        return await self.compute(verify_worktree, worktree, branch, self.trusted)

    def bind(self, function: Callable[Concatenate["GitContext", P], T]) -> Callable[P, T]:
        """Bind the function to this context: a method of one of the nouns of `Git`."""
        return functools.partial(function, self)

    def threaded(self, function: Callable[P, T]) -> Callable[P, Coroutine[Any, Any, T]]:
        """Bind a blocking function as a method of a noun, which `compute` runs."""
        return functools.partial(self.compute, function)

    async def compute(self, function: Callable[P, T], *arguments: P.args, **keywords: P.kwargs) -> T:
        """Call a blocking function in a thread. Errors of libgit2 and the system become
        GitFailedError."""
        return await self._in(self._threads, functools.partial(function, *arguments, **keywords))

    async def delete(self, function: Callable[P, T], *arguments: P.args, **keywords: P.kwargs) -> T:
        """As `compute`, in separate threads for work of seconds: ten deletions must not block other
        calls."""
        return await self._in(self._deleter, functools.partial(function, *arguments, **keywords))

    async def make_durable(self, git_dir: Path, *places: Path) -> None:
        """Sync a repository, and the file systems of ``places``, to disk, before anything is
        destroyed.

        Every destructive step calls this first: the replacement must be on disk before (see
        `durability.make_durable` for the cost). Raise GitFailedError if the disk fails; the caller
        must then destroy nothing.
        """

        def flush() -> None:
            common = common_dir(git_dir)
            durability.make_durable(common, common / "objects", *places)  # objects may be a link to another disk

        await self._in(self._flushers, flush)

    async def _in(self, executor: ThreadPoolExecutor, call: Callable[[], T]) -> T:
        future = asyncio.get_running_loop().run_in_executor(executor, call)
        try:
            return await asyncio.shield(future)
        except OSError as error:
            # Errors of libgit2 have a text, but no number; those of `os.write` have no name.
            words = f"{error.filename}: {error.strerror}" if error.filename else error.strerror or str(error)
            raise GitFailedError(words, hint="look at its permissions and the disk") from error
        except asyncio.CancelledError:
            # A thread cannot be stopped; returning now would release the caller's lock while the
            # thread still runs.
            await asyncio.wait([future])
            raise
        except pygit2.GitError as error:
            raise GitFailedError(f"libgit2: {error}") from error
        except KeyError as error:
            # libgit2 raises this for a missing object; any other key is a defect of Ramet.
            if _OBJECT.fullmatch(str(error.args[0])) is None:
                raise
            raise GitFailedError(
                f"git no longer has the object {error.args[0]}", hint="`git fsck` lists what else is missing"
            ) from error

    def worktree_lock(self, worktree: Path) -> asyncio.Lock:
        """Lock of a private index, which only one task may write."""
        return self._worktree_locks.setdefault(worktree, asyncio.Lock())

    async def aclose(self) -> None:
        """Wait for the threads."""
        for executor in (self._threads, self._deleter, self._flushers):
            await asyncio.to_thread(executor.shutdown)
