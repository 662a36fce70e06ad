"""Carry: copy ignored files from the main worktree into a new one.

Candidates are the files that git ignores there. A completely ignored directory (``node_modules``)
is one candidate: a pattern that names the directory copies all of it, and one for a path inside it
copies the matching files. So ``.env*`` does not collect files of a thousand packages.

Files are copied, sharing blocks if the file system can (`clone_file`). A link instead of a copy
would let a setup or an agent write to the person's files. Copied links keep their targets; a target
inside the old worktree becomes the same path in the new one.

A file that git would not ignore in the new worktree is left out: ``git add`` must not add a secret.
Existing files are not replaced, except unchanged copies in a spare (`Given`). Each copy is recorded
in the git directory of the worktree, and copied once: afterwards the file belongs to the session.
"""

import asyncio
import json
import os
import re
import shutil
import stat
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pathspec import GitIgnoreSpec
from ramet.words import plural

from rametd.config import Config
from rametd.domain.errors import RametError
from rametd.domain.text import listed
from rametd.git import existing_git_dir, git_dir_of, write_note
from rametd.platform.files import clone_file
from rametd.services.core import Core

NOTE = "ramet-carried"

Stamp = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Copy:
    """Stamps of a source and its copy, the bytes that the copy takes on disk, and a line for each
    path inside it that was not copied."""

    source: Stamp
    target: Stamp
    bytes: int = 0
    words: tuple[str, ...] = ()


@dataclass(slots=True)
class Given:
    """Record of copies, by name. ``settled``: a session has the worktree and owns the copies."""

    settled: bool = False
    files: dict[str, Copy] = field(default_factory=dict)

    def is_current(self, name: str, source: os.stat_result) -> bool:
        """Whether the copy was made of the present source."""
        return name in self.files and self.files[name].source == of_source(source)

    def is_untouched(self, name: str, there: os.stat_result) -> bool:
        """Whether the copy was not changed since."""
        return name in self.files and self.files[name].target == _of_target(there)


def of_source(seen: os.stat_result) -> Stamp:
    return seen.st_size, seen.st_mtime_ns


def _of_target(seen: os.stat_result) -> Stamp:
    """Includes ctime, which no program can set back."""
    return seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns


def read_given(tree: Path) -> Given:
    """Read the record, an empty one if it is missing or incomplete. Blocks."""
    git_dir = existing_git_dir(tree)
    if git_dir is None:
        return Given()
    try:
        noted = json.loads((git_dir / NOTE).read_text())
        files = {
            name: Copy(tuple(source), tuple(target), size, tuple(words))
            for name, (source, target, size, words) in noted["files"].items()
        }
        return Given(noted["settled"], files)
    except (FileNotFoundError, ValueError):
        return Given()


def write_given(tree: Path, given: Given) -> None:
    """Write the record. Blocks."""
    git_dir = existing_git_dir(tree)
    if git_dir is None:
        return
    files = {name: (copy.source, copy.target, copy.bytes, copy.words) for name, copy in given.files.items()}
    write_note(git_dir, NOTE, json.dumps({"settled": given.settled, "files": files}))


REWRITE_LIMIT = 16 << 20
"""Maximum size in bytes of a file in which paths are rewritten."""


@dataclass(slots=True)
class Carried:
    """Number of copied files, bytes that they take on disk, and one line for each path that was not
    copied."""

    files: int = 0
    bytes: int = 0
    words: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Order:
    """What to copy, as patterns in gitignore's syntax. ``limit`` is bytes."""

    carry: tuple[str, ...]
    rewrite: tuple[str, ...]
    limit: int


@dataclass(frozen=True, slots=True)
class Chosen:
    """Paths relative to the source; a completely copied directory ends in ``/``."""

    paths: tuple[str, ...] = ()


async def carry(core: Core, source: Path, tree: Path, config: Config, *, settle: bool) -> Carried:
    """Copy the configured files from the worktree ``source`` into ``tree``. The result describes
    failures.

    ``settle``: a session has the worktree, and owns its copies from now on.
    """
    patterns = config.carry
    if not patterns or source == tree:
        return Carried()
    done = Carried()
    order = Order(patterns, config.carry_rewrite, config.carry_limit)
    try:
        candidates = await core.git.worktrees.ignored_files(source)
        chosen = await asyncio.to_thread(choose, source, tree, candidates, order, done)
        if chosen.paths:
            ignored = await core.git.worktrees.ignored_among(tree, chosen.paths)
            given = await asyncio.to_thread(read_given, tree)
            await asyncio.to_thread(bring, source, tree, chosen, ignored, order, given, done)
            given.settled |= settle
            await asyncio.to_thread(write_given, tree, given)
    except RametError as error:
        done.words.append(f"nothing was carried: {error.message}")
    except OSError as error:
        done.words.append(f"the carried files cannot be recorded: {error.strerror}")
    return done


def choose(source: Path, tree: Path, candidates: Sequence[str], order: Order, done: Carried) -> Chosen:
    """Choose from ``candidates`` (paths relative to ``source``, directories ending in ``/``) by the
    patterns. Blocks."""
    found: list[str] = []
    for path in _named(source, candidates, _spec(order.carry, done), order.carry):
        if not _is_open(tree, path):
            words = "a parent of it in the new worktree is not a directory"
            done.words.append(f"{path.rstrip('/')} is not carried: {words}")
        elif tree.is_relative_to(source / path):
            done.words.append(f"{path.rstrip('/')} is not carried: the new worktree is inside it")
        else:
            found.append(path)
    return Chosen(tuple(found))


def bring(
    source: Path, tree: Path, chosen: Chosen, ignored: Collection[str], order: Order, given: Given, done: Carried
) -> None:
    """Copy the chosen paths that git ignores in the new worktree (``ignored``). Record them in
    ``given`` and ``done``. Blocks."""
    copying = _Copying(source, tree, _spec(order.rewrite, done) if order.rewrite else None, done)
    too_much: list[str] = []
    exposed: list[str] = []
    # The limit counts earlier copies too, such as those from when it was a spare.
    room = order.limit - sum(copy.bytes for copy in given.files.values())
    with _scratch(tree) as scratch:
        for path in chosen.paths:
            name = path.rstrip("/")
            if given.settled and name in given.files:
                continue  # copied once; the session may have deleted it
            if path not in ignored:
                exposed.append(name)
                continue
            try:
                seen, target, earlier = (source / name).lstat(), tree / name, given.files.get(name)
                if not _is_copied(name, seen, target, given, done):
                    # Warn the session that gets a spare about what the spare lacks.
                    done.words += earlier.words if earlier is not None else ()
                    continue
                target.parent.mkdir(parents=True, exist_ok=True)
                used, lines = done.bytes, len(done.words)
                freed = earlier.bytes if earlier is not None else 0
                if copying.put(path, scratch / "copy", target, room + freed):
                    copy = Copy(
                        of_source(seen), _of_target(target.lstat()), done.bytes - used, tuple(done.words[lines:])
                    )
                    given.files[name], room = copy, room + freed - copy.bytes
            except _TooMuchError:
                too_much.append(name)
            except OSError as error:
                done.words.append(f"{name} is not carried: {error.strerror}")
    if too_much:
        done.words.append(
            f"{_files(too_much)} not carried: over the limit of {order.limit >> 20} MiB (carry_limit): {listed(too_much)}"
        )
    if exposed:
        words = "the branch tracks them or does not ignore them"
        done.words.append(f"{_files(exposed)} not carried: {words}: {listed(exposed)}")


def _files(names: Sequence[str]) -> str:
    return f"{plural(len(names), 'file')} {'is' if len(names) == 1 else 'are'}"


def _is_copied(name: str, seen: os.stat_result, target: Path, given: Given, done: Carried) -> bool:
    """Whether to copy a file: it is missing, or an unchanged copy of an older source."""
    if not (stat.S_ISREG(seen.st_mode) or stat.S_ISLNK(seen.st_mode) or stat.S_ISDIR(seen.st_mode)):
        return False  # a socket or a pipe
    there = _lstat(target)
    if there is None:
        return True
    if name not in given.files or given.is_current(name, seen) or stat.S_ISDIR(seen.st_mode):
        return False
    if not given.is_untouched(name, there):
        done.words.append(f"{name} is not carried again: it was changed in the worktree")
        return False
    return True


def _spec(lines: Sequence[str], done: Carried) -> GitIgnoreSpec:
    """Compile the valid patterns; report the others."""
    good = []
    for text in lines:
        try:
            GitIgnoreSpec.from_lines([text])
        except ValueError:
            done.words.append(f"{text!r} is not a valid pattern: ignored")
        else:
            good.append(text)
    return GitIgnoreSpec.from_lines(good)


def _named(source: Path, candidates: Sequence[str], wanted: GitIgnoreSpec, patterns: Sequence[str]) -> Iterator[str]:
    inside = [pattern.strip().lstrip("!/") for pattern in patterns]
    for candidate in candidates:
        if _is_forbidden(candidate):
            continue
        if not candidate.endswith("/"):
            if wanted.match_file(candidate):
                yield candidate
        elif any(pattern.startswith(candidate) for pattern in inside if pattern != candidate):
            yield from (path for path in _files_in(source, candidate) if wanted.match_file(path))
        elif wanted.match_file(candidate):
            yield candidate


def _files_in(source: Path, directory: str) -> Iterator[str]:
    """Files and links below a directory. Does not follow a link, and skips ``.git`` and
    worktrees."""
    if (source / directory.rstrip("/")).is_symlink():
        yield directory.rstrip("/")
        return
    for folder, folders, files in os.walk(source / directory):
        place = Path(folder).relative_to(source)
        links = [name for name in folders if Path(folder, name).is_symlink()]
        apart = [*links, ".git", *(name for name in folders if _is_worktree(Path(folder, name)))]
        folders[:] = sorted(name for name in folders if name not in apart)
        yield from (str(place / name) for name in sorted([*files, *links]) if name != ".git")


def _is_worktree(directory: Path) -> bool:
    """Whether a directory is a linked worktree, such as one that an agent has created in an ignored
    directory."""
    dot_git = directory / ".git"
    git_dir = git_dir_of(directory) if dot_git.is_file() else None
    return git_dir is not None and git_dir.parent.name == "worktrees"


def _is_forbidden(path: str) -> bool:
    return not {".git", ".."}.isdisjoint(path.split("/"))


def _is_open(tree: Path, path: str) -> bool:
    """Whether all parents of a path are directories of the worktree, not links or nested
    repositories."""
    place = tree
    for part in Path(path).parts[:-1]:
        place /= part
        there = _lstat(place)
        if there is None:
            return True
        if not stat.S_ISDIR(there.st_mode) or _lstat(place / ".git") is not None:
            return False
    return True


@contextmanager
def _scratch(tree: Path) -> Iterator[Path]:
    """Yield a temporary directory beside the worktree, where git does not see it after a kill. By
    its name it is removed with the worktree."""
    folder = tree.with_name(f".{tree.name}.removing-0")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _TooMuchError(Exception):
    """Raised when a copy would take more space than is left of the limit."""


class _Copying:
    """Copies of one call, with their total size."""

    def __init__(self, source: Path, tree: Path, rewritten: GitIgnoreSpec | None, done: Carried) -> None:
        self._source, self._tree = source, tree
        self._rewritten = rewritten
        self._limit = 0
        self._done = done

    def put(self, path: str, scratch: Path, target: Path, room: int) -> bool:
        """Copy one path completely or not at all, through ``scratch``, with at most ``room`` bytes.
        Return whether a copy exists. Raises `_TooMuchError`, `OSError`."""
        _clear(scratch)
        files, used = self._done.files, self._done.bytes
        self._limit = used + room
        try:
            self._copy(path.rstrip("/"), scratch)
            if not os.path.lexists(scratch):
                return False
            mode = stat.S_IMODE(scratch.lstat().st_mode)
            is_directory = scratch.is_dir() and not scratch.is_symlink()
            if is_directory:
                scratch.chmod(0o700)  # a read-only directory cannot be moved
            scratch.rename(target)
            if is_directory:
                target.chmod(mode)
            return True
        except (_TooMuchError, OSError):
            self._done.files, self._done.bytes = files, used
            raise
        finally:
            _clear(scratch)

    def _copy(self, name: str, made: Path) -> None:
        place = self._source / name
        seen = place.lstat()
        if stat.S_ISDIR(seen.st_mode):
            self._copy_directory(name, seen, made)
            return
        if stat.S_ISLNK(seen.st_mode):
            self._copy_link(name, place, made)
        elif stat.S_ISREG(seen.st_mode):
            self._copy_file(name, place, seen, made)
        else:
            return  # a socket or a pipe
        self._done.files += 1

    def _copy_directory(self, name: str, seen: os.stat_result, made: Path) -> None:
        if _is_worktree(self._source / name):
            self._done.words.append(f"{name} is not carried: it is a worktree")
            return
        made.mkdir(mode=0o700)
        with os.scandir(self._source / name) as found:
            entries = sorted(entry.name for entry in found if entry.name != ".git")
        for entry in entries:
            self._copy(f"{name}/{entry}", made / entry)
        made.chmod(stat.S_IMODE(seen.st_mode))

    def _copy_file(self, name: str, place: Path, seen: os.stat_result, made: Path) -> None:
        shared = clone_file(place, made, at_most=self._limit - self._done.bytes)
        if shared is None:
            raise _TooMuchError
        self._done.bytes += 0 if shared else seen.st_size
        if self._rewritten is not None and seen.st_size <= REWRITE_LIMIT and self._rewritten.match_file(name):
            _rewrite(made, str(self._source), str(self._tree))
        shutil.copystat(place, made)

    def _copy_link(self, name: str, place: Path, made: Path) -> None:
        """Copy a link. A target inside the main worktree becomes the same path in the new one.

        For any other target, copy a file and omit a directory: a tool would write through the link.
        """
        text = place.readlink()
        end = Path(os.path.normpath(place.parent / text))
        if end.is_relative_to(self._source):
            inside = self._tree / end.relative_to(self._source)
            made.symlink_to(inside if text.is_absolute() else text)
        elif place.is_dir():
            why = f"it is a link to a directory elsewhere ({end}); `setup` can create the link"
            self._done.words.append(f"{name} is not carried: {why}")
        elif _is_program(place) or not place.is_file():
            made.symlink_to(end if text.is_absolute() else os.path.relpath(end, (self._tree / name).parent))
        else:
            self._copy_file(name, place, place.stat(), made)


def _is_program(place: Path) -> bool:
    """Whether a link leads to a program, such as the interpreter of a virtual environment, which
    finds its library beside it."""
    return place.is_file() and os.access(place, os.X_OK)


def _clear(place: Path) -> None:
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place, ignore_errors=True)
    else:
        place.unlink(missing_ok=True)


def _rewrite(file: Path, old: str, new: str) -> None:
    """Replace the path ``old`` by ``new``, also as a prefix of longer paths."""
    text = file.read_bytes()
    changed = re.sub(re.escape(os.fsencode(old)) + rb"(?![\w.-])", lambda _: os.fsencode(new), text)
    if changed != text:
        file.write_bytes(changed)


def _lstat(path: Path) -> os.stat_result | None:
    try:
        return path.lstat()
    except FileNotFoundError:
        return None
