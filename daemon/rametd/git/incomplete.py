"""Checkouts that git leaves incomplete: take back the files that it has written.

When git cannot write a file (a full disk, a read-only directory, a failing filter), the files that
it has written stay. By command and fault, HEAD and the index are

- both at the old commit;
- at the old and the new commit: the branch is locked;
- both at the new commit: `git checkout` continues after some errors, and exits with 0.

A file of the new commit, or a beginning of one, has no content that is not in the repository. Only
such files are removed or overwritten, and missing ones written. Any other file was changed since,
and stays.
"""

import os
import shlex
import stat
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

import pygit2

from rametd.domain.errors import CheckoutIncompleteError, GitBusyError, GitFailedError
from rametd.git.context import GitContext
from rametd.git.obstacles import in_the_way, named
from rametd.git.process import Completed, at, path_lines
from rametd.git.repository import head_of, open_repository
from rametd.git.underway import staged_paths

ABSENT: Final = "000000"
_LINK: Final = "120000"
_FILES: Final = {"100644": stat.S_IFREG, "100755": stat.S_IFREG, _LINK: stat.S_IFLNK}
"""Modes of git that are files, with their types."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A path that differs between two commits: modes and objects."""

    old_mode: str
    new_mode: str
    old: str
    new: str


async def entries(git: GitContext, worktree: Path, there: Iterable[str], old: str, new: str) -> dict[str, Entry]:
    """Return the paths that differ between two commits."""
    words = ("diff-tree", "-r", "-z", "--raw", "--no-abbrev", "--no-renames", old, new)
    fields = os.fsdecode(await git.process.read(worktree, *there, *words)).split("\0")
    return {path: Entry(*record[1:].split()[:4]) for record, path in zip(fields[0::2], fields[1::2], strict=False)}


async def check_out(
    git: GitContext,
    worktree: Path,
    git_dir: Path,
    branch: str | None,
    old: str,
    new: str,
    words: tuple[str, ...],
    environment: Mapping[str, str] = MappingProxyType({}),
    lock: int | None = None,
) -> Completed:
    """Run a git command that switches a worktree from ``old``, with ``branch`` checked out, to
    ``new``. If it fails, take back its changes.

    Raise GitBusyError, and CheckoutIncompleteError if the changes could not be taken back.
    """
    there = at(git_dir, worktree)
    coming = await entries(git, worktree, there, old, new)
    before = await git.compute(lambda: _states(worktree, [*coming, *_folders(coming)]))
    checkout = _Checkout(git, worktree, git_dir, branch, old, new, coming, before)
    try:
        done = await git.process.run(worktree, *there, *words, environment=environment, lock=lock)
    except GitBusyError as error:
        await checkout.take_back_after(error.message)
        raise
    if done.returncode != 0:
        await checkout.take_back_after(done.words, done.unwritten)
    return done


async def take_back_killed(
    git: GitContext, worktree: Path, git_dir: Path, branch: str, old: str, new: str
) -> tuple[str, ...]:
    """Take back the changes of a `check_out` that was killed; return the paths.

    Changes nothing without a file of the new commit: a person may have deleted those that are
    missing.
    """
    coming = await entries(git, worktree, at(git_dir, worktree), old, new)
    return await _Checkout(git, worktree, git_dir, branch, old, new, coming, None).take_back()


async def leave_killed(git: GitContext, worktree: Path, git_dir: Path, branch: str | None, old: str, new: str) -> bool:
    """Return HEAD and the index to the old commit, and leave the files, if a killed `check_out`
    that moved HEAD has not written all. Return whether that is so."""
    coming = await entries(git, worktree, at(git_dir, worktree), old, new)
    checkout = _Checkout(git, worktree, git_dir, branch, old, new, coming, None)
    unfinished = await checkout.is_unfinished()
    if unfinished:
        await checkout.return_head()
    return unfinished


_States = Mapping[str, os.stat_result | None]
"""The files at paths, None for a missing one."""


@dataclass(frozen=True, slots=True)
class _Checkout:
    """``before``: the states of the files, and of the directories above them, before git began;
    None if unknown."""

    git: GitContext
    worktree: Path
    git_dir: Path
    branch: str | None
    old: str
    new: str
    coming: Mapping[str, Entry]
    before: _States | None

    @property
    def there(self) -> tuple[str, str]:
        return at(self.git_dir, self.worktree)

    async def take_back_after(self, said: str, unwritten: Collection[str] = ()) -> None:
        """As `take_back`; the error of a failure names git's own, ``said``, first."""
        try:
            await self.take_back(unwritten)
        except (GitFailedError, GitBusyError) as error:
            raise CheckoutIncompleteError(
                f"{said}; git has written other files in {self.worktree}, and they could not be taken back: {error.message}",
                hint=f"`{shlex.join(('git', '-C', str(self.worktree), 'status'))}` shows them",
                worktree=str(self.worktree),
            ) from error

    async def take_back(self, unwritten: Collection[str] = ()) -> tuple[str, ...]:
        """Return files, index and HEAD to the old commit; return the paths of the files.
        ``unwritten``: paths in git's error messages."""
        git = self.git
        head = await git.compute(lambda: head_of(open_repository(self.git_dir)))
        if head.commit != self.old and (head.commit, head.branch) != (self.new, None):
            return ()  # git has moved the branch, or a person has moved HEAD
        touched = await git.compute(self._touched)
        written = await self._written(touched, unwritten)
        if not (touched if self.before is not None else written) and head.commit == self.old:
            return ()
        stuck = await git.compute(self._delete, written)  # first, as it makes room
        await self.return_head()
        lost = await git.compute(self._lost, touched)
        # Files that the new commit does not have come first: until the others are written, these
        # show the next daemon that the checkout was incomplete. A file on which git has died comes
        # last: git would die again.
        back = sorted(
            {*lost, *(path for path in written if self.coming[path].old_mode in _FILES)},
            key=lambda path: (path in unwritten, self.coming[path].new_mode in _FILES, path),
        )
        if back:
            words = ("checkout-index", "-q", "-z", "--force", "--stdin")
            await git.process.write(self.worktree, *self.there, *words, stdin=_listed(back))
        if stuck:
            raise GitFailedError(f"cannot delete {named(stuck)}", hint="look at the permissions")
        return tuple(sorted({*back, *written}))

    async def is_unfinished(self) -> bool:
        """Whether a file of the new commit is missing, is the old one, or a beginning of itself."""
        touched = await self.git.compute(self._touched)
        if any(state is None and self.coming[path].new_mode in _FILES for path, state in touched.items()):
            return True
        ids = await self._ids(touched)

        def work() -> bool:
            return any(
                not self._is_new(path, found, touched[path])
                and (found == self.coming[path].old or self._is_beginning(path, found))
                for path, found in ids.items()
            )

        return await self.git.compute(work)

    async def return_head(self) -> None:
        """Return HEAD and the index from the new commit to the old one."""
        git, there = self.git, self.there
        head = await git.compute(lambda: head_of(open_repository(self.git_dir)))
        if head.commit == self.new:
            back = (
                ("symbolic-ref", "HEAD", f"refs/heads/{self.branch}")
                if self.branch
                else ("update-ref", "--no-deref", "HEAD", self.old)
            )
            await git.process.write(self.worktree, *there, *back)
        # Git writes the index completely or not at all; a person may have staged some of these.
        if self.coming.keys() <= set(await staged_paths(git, self.git_dir, self.old)):
            reset = ("--literal-pathspecs", "reset", "-q", "--pathspec-from-file=-", "--pathspec-file-nul", self.old)
            await git.process.run(self.worktree, *there, *reset, stdin=_listed(self.coming))

    def _touched(self) -> dict[str, os.stat_result | None]:
        """Return the states of the files that have changed since git began, of all if that is
        unknown. A file behind a link is not the worktree's."""
        is_plain = _plain(self.worktree)
        return {
            path: state
            for path, state in _states(self.worktree, self.coming).items()
            if (self.before is None or not _same(self.before[path], state)) and is_plain(path)
        }

    async def _written(self, touched: _States, unwritten: Collection[str]) -> frozenset[str]:
        """Return the files that are git's: as of the new commit, a beginning, or named by git."""
        ids = await self._ids(touched)

        def work() -> frozenset[str]:
            return frozenset(
                path
                for path, found in ids.items()
                if self._is_new(path, found, touched[path]) or path in unwritten or self._is_beginning(path, found)
            )

        return await self.git.compute(work)

    async def _ids(self, touched: _States) -> dict[str, str]:
        """Return git's id of each file that has the same type as in the new commit."""
        found = {
            path: mode
            for path, state in touched.items()
            if state is not None and _FILES.get(mode := self.coming[path].new_mode) == stat.S_IFMT(state.st_mode)
        }

        def targets() -> dict[str, str]:
            links = [path for path, mode in found.items() if mode == _LINK]
            return {path: str(pygit2.hash(os.fsencode((self.worktree / path).readlink()))) for path in links}

        ids = await self.git.compute(targets)
        if files := [path for path, mode in found.items() if mode != _LINK]:
            # As `git status` compares, with git's own filters.
            words, lines = ("hash-object", "--stdin-paths"), path_lines(map(os.fsencode, files))
            output = await self.git.process.read(self.worktree, *self.there, *words, stdin=lines)
            ids |= zip(files, output.decode().split(), strict=True)
        return ids

    def _is_new(self, path: str, found: str, state: os.stat_result | None) -> bool:
        """Whether a file with this id is as of the new commit, and not as of the old one."""
        entry = self.coming[path]
        if found != entry.new or state is None:
            return False
        if entry.old != found or _FILES.get(entry.old_mode) != stat.S_IFMT(state.st_mode):
            return True
        return bool(state.st_mode & stat.S_IXUSR) == (entry.new_mode == "100755")

    def _is_beginning(self, path: str, found: str) -> bool:
        """Whether a file is a beginning of the new one, as a full disk or a kill leaves it."""
        entry, file = self.coming[path], self.worktree / path
        if entry.new_mode == _LINK or found in {entry.old, entry.new}:
            return False
        blob = open_repository(self.git_dir)[entry.new]
        assert isinstance(blob, pygit2.Blob)
        return file.stat().st_size < blob.size and blob.data.startswith(file.read_bytes())

    def _lost(self, touched: _States) -> list[str]:
        """Return the files of the old commit that are missing, and whose place is free."""
        missing = [path for path in touched if not os.path.lexists(self.worktree / path)]
        return [
            path for path in missing if self.coming[path].old_mode in _FILES and not in_the_way(self.worktree, [path])
        ]

    def _delete(self, written: Collection[str]) -> list[str]:
        """Delete files that the old commit does not have, and directories that git has created for
        them. Return the paths that cannot be deleted."""
        old = open_repository(self.git_dir)[self.old].peel(pygit2.Tree)
        is_plain = _plain(self.worktree)
        stuck: list[str] = []
        for path, entry in self.coming.items():
            if entry.old_mode in _FILES or not is_plain(path):
                continue
            try:
                if path in written:
                    (self.worktree / path).unlink(missing_ok=True)
            except OSError:
                stuck.append(path)
            for folder in list(Path(path).parents)[:-1]:
                was = self.before[str(folder)] if self.before is not None else None
                if was is not None and stat.S_ISDIR(was.st_mode):
                    break
                if str(folder) in old and isinstance(old[str(folder)], pygit2.Tree):
                    break
                try:
                    (self.worktree / folder).rmdir()
                except FileNotFoundError:
                    continue
                except OSError:  # it is not empty, or no directory
                    break
        return stuck


def _states(worktree: Path, paths: Iterable[str]) -> dict[str, os.stat_result | None]:
    return {path: _state(worktree / path) for path in paths}


def _folders(paths: Iterable[str]) -> set[str]:
    """Return the directories above paths, except the worktree."""
    found: set[str] = set()
    for path in paths:
        while (path := path.rpartition("/")[0]) and path not in found:
            found.add(path)
    return found


def _state(file: Path) -> os.stat_result | None:
    try:
        return file.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None


def _same(one: os.stat_result | None, other: os.stat_result | None) -> bool:
    if one is None or other is None:
        return one is other
    return (one.st_ino, one.st_mode, one.st_size, one.st_mtime_ns) == (
        other.st_ino, other.st_mode, other.st_size, other.st_mtime_ns
    )  # fmt: skip


def _plain(worktree: Path) -> Callable[[str], bool]:
    """Return a function that tells whether no link is above a path in the worktree."""
    known = {"": True}

    def is_plain(path: str) -> bool:
        folder = path.rpartition("/")[0]
        if folder not in known:
            known[folder] = is_plain(folder) and not (worktree / folder).is_symlink()
        return known[folder]

    return is_plain


def _listed(paths: Iterable[str]) -> bytes:
    return b"".join(os.fsencode(path) + b"\0" for path in paths)
