"""Carry ignored files that a tree needs from the main worktree into a new one.

Candidates are what git ignores there. A directory that is ignored as a whole (``node_modules``) is one candidate. A pattern that names it
copies it as one piece; one that names a place inside it copies the files there, so that ``.env*`` does not gather the environments of a
thousand packages.

Everything is a copy, cheap where the file system can share blocks (`clone_file`): through a link, a setup or an agent would write into
the person's files. Links keep pointing where they did, but into the new tree where they pointed into the old one.

What arrives in the new worktree is ignored there too, or is left out: the next ``git add`` must not take a secret along. Nothing replaces what
is there, except what a spare was given earlier and nobody has changed since (`given`).
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
from rametd.git import existing_git_dir
from rametd.platform.cloning import clone_file
from rametd.services.core import Core
from rametd.services.words import listed

NOTE = "ramet-carried"

Stamp = tuple[int, ...]


@dataclass(slots=True)
class Given:
    """``files``: by name, how the source was then, and the file in the tree. ``settled``: a session has the tree, and what is noted is its own."""

    settled: bool = False
    files: dict[str, tuple[Stamp, Stamp]] = field(default_factory=dict)

    def note(self, name: str, source: os.stat_result, target: Path) -> None:
        self.files[name] = (of_source(source), _of_target(target.lstat()))

    def is_current(self, name: str, source: os.stat_result) -> bool:
        """Whether what the tree was given is what there is to give."""
        return name in self.files and self.files[name][0] == of_source(source)

    def is_untouched(self, name: str, there: os.stat_result) -> bool:
        """Whether a file in the tree is the one that it was given."""
        return name in self.files and self.files[name][1] == _of_target(there)


def of_source(seen: os.stat_result) -> Stamp:
    return seen.st_size, seen.st_mtime_ns


def _of_target(seen: os.stat_result) -> Stamp:
    """Whatever is done to a file, nobody can set back when."""
    return seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns


def read_given(tree: Path) -> Given:
    """Nothing where none is noted, or not to the end. Blocks."""
    git_dir = existing_git_dir(tree)
    if git_dir is None:
        return Given()
    try:
        noted = json.loads((git_dir / NOTE).read_text())
        files = {name: (tuple(source), tuple(target)) for name, (source, target) in noted["files"].items()}
        return Given(noted["settled"], files)
    except (FileNotFoundError, ValueError):
        return Given()


def write_given(tree: Path, given: Given) -> None:
    """Blocks."""
    git_dir = existing_git_dir(tree)
    if git_dir is None:
        return
    scratch = git_dir / f"{NOTE}.new"
    scratch.write_text(json.dumps({"settled": given.settled, "files": given.files}))
    scratch.replace(git_dir / NOTE)


REWRITE_LIMIT = 16 << 20
"""Bytes of a file in which paths are rewritten."""


@dataclass(slots=True)
class Carried:
    """Files copied, bytes among them that take space of their own, and one line for each thing that was not done."""

    files: int = 0
    bytes: int = 0
    words: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Order:
    """What to carry, as patterns in gitignore's syntax. ``limit`` is bytes."""

    carry: tuple[str, ...]
    rewrite: tuple[str, ...]
    limit: int


@dataclass(frozen=True, slots=True)
class Chosen:
    """Paths from the source; a directory that is copied as one piece ends in ``/``."""

    paths: tuple[str, ...] = ()


async def carry(core: Core, source: Path, tree: Path, config: Config, *, settle: bool) -> Carried:
    """Bring what the configuration names from the worktree ``source`` into ``tree``. Never fatal.

    ``settle``: a session has the tree, and what it has been given is its own from now on.
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
        done.words.append(f"nothing is carried: {error.message}")
    except OSError as error:
        done.words.append(f"what was carried cannot be noted: {error.strerror}")
    return done


def choose(source: Path, tree: Path, candidates: Sequence[str], order: Order, done: Carried) -> Chosen:
    """Those of ``candidates`` (paths from ``source``, directories ending in ``/``) that the order names. Blocks."""
    found: list[str] = []
    for path in _named(source, candidates, _spec(order.carry, done), order.carry):
        if not _is_open(tree, path):
            words = "what lies above it in the new worktree is no directory"
            done.words.append(f"{path.rstrip('/')} is not carried: {words}")
        elif tree.is_relative_to(source / path):
            done.words.append(f"{path.rstrip('/')} is not carried: the new worktree lies in it")
        else:
            found.append(path)
    return Chosen(tuple(found))


def bring(
    source: Path, tree: Path, chosen: Chosen, ignored: Collection[str], order: Order, given: Given, done: Carried
) -> None:
    """Copy what was chosen and is ``ignored`` in the tree; ``given`` and ``done`` record it. Blocks."""
    copying = _Copying(source, tree, _spec(order.rewrite, done) if order.rewrite else None, order.limit, done)
    too_much: list[str] = []
    exposed: list[str] = []
    with _scratch(tree) as scratch:
        for path in chosen.paths:
            name = path.rstrip("/")
            if given.settled and name in given.files:
                continue  # it had it once: whatever has become of that is not ours
            if path not in ignored:
                exposed.append(name)
                continue
            try:
                seen, target = (source / name).lstat(), tree / name
                if not _is_wanted(name, seen, target, given, done):
                    continue
                target.parent.mkdir(parents=True, exist_ok=True)
                if copying.put(path, scratch / "copy", target):
                    given.note(name, seen, target)
            except _TooMuchError:
                too_much.append(name)
            except OSError as error:
                done.words.append(f"{name} is not carried: {error.strerror}")
    if too_much:
        words = f"that would be more than {order.limit >> 20} MiB (carry_limit)"
        done.words.append(f"{_files(too_much)} not carried, for {words}: {listed(too_much)}")
    if exposed:
        words = "the branch tracks them or does not ignore them, so that they would be committed"
        done.words.append(f"{_files(exposed)} not carried, for {words}: {listed(exposed)}")


def _files(names: Sequence[str]) -> str:
    return f"{plural(len(names), 'file')} {'is' if len(names) == 1 else 'are'}"


def _is_wanted(name: str, seen: os.stat_result, target: Path, given: Given, done: Carried) -> bool:
    """Whether it is to be made, or to be brought up to date."""
    if not (stat.S_ISREG(seen.st_mode) or stat.S_ISLNK(seen.st_mode) or stat.S_ISDIR(seen.st_mode)):
        return False  # a socket or a pipe is nobody's configuration
    there = _lstat(target)
    if there is None:
        return True
    if name not in given.files or given.is_current(name, seen) or stat.S_ISDIR(seen.st_mode):
        return False
    if not given.is_untouched(name, there):
        done.words.append(f"{name} is not carried anew: it was changed in the worktree")
        return False
    return True


def _spec(lines: Sequence[str], done: Carried) -> GitIgnoreSpec:
    """What of ``lines`` means something; the rest is told."""
    good = []
    for text in lines:
        try:
            GitIgnoreSpec.from_lines([text])
        except ValueError:
            done.words.append(f"{text!r} is no pattern; nothing is carried by it")
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
    """Files and links below a directory, which is not followed where it is a link itself; repositories in it are left alone."""
    if (source / directory.rstrip("/")).is_symlink():
        yield directory.rstrip("/")
        return
    for folder, folders, files in os.walk(source / directory):
        place = Path(folder).relative_to(source)
        links = [name for name in folders if Path(folder, name).is_symlink()]
        folders[:] = sorted(name for name in folders if name not in links and name != ".git")
        yield from (str(place / name) for name in sorted([*files, *links]) if name != ".git")


def _is_forbidden(path: str) -> bool:
    return not {".git", ".."}.isdisjoint(path.split("/"))


def _is_open(tree: Path, path: str) -> bool:
    """Whether only directories are above it: what a branch holds, such as a link or a repository, must not lead us out of the tree."""
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
    """A directory for a file that is being written: beside the tree, where nobody commits what a kill has left, and named as what goes with the tree."""
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
    """Copies of one call, and how much space they take together."""

    def __init__(self, source: Path, tree: Path, rewritten: GitIgnoreSpec | None, limit: int, done: Carried) -> None:
        self._source, self._tree = source, tree
        self._rewritten = rewritten
        self._limit = limit
        self._done = done

    def put(self, path: str, scratch: Path, target: Path) -> bool:
        """Copy one path, whole or not at all, by way of ``scratch``; returns whether there is a copy. Raises _TooMuchError, OSError."""
        _clear(scratch)
        files, used = self._done.files, self._done.bytes
        try:
            self._copy(path.rstrip("/"), scratch)
            if not os.path.lexists(scratch):
                return False
            mode = stat.S_IMODE(scratch.lstat().st_mode)
            is_directory = scratch.is_dir() and not scratch.is_symlink()
            if is_directory:
                scratch.chmod(0o700)  # one that nobody may write to cannot be moved
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
            return  # a socket or a pipe belongs to a process, not to a tree
        self._done.files += 1

    def _copy_directory(self, name: str, seen: os.stat_result, made: Path) -> None:
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
        """A link into the main worktree becomes one into this tree. One that leads out of it is followed where it is a file, else left out:
        a tool that works on the tree would write through it."""
        text = place.readlink()
        end = Path(os.path.normpath(place.parent / text))
        if end.is_relative_to(self._source):
            inside = self._tree / end.relative_to(self._source)
            made.symlink_to(inside if text.is_absolute() else text)
        elif place.is_dir():
            self._done.words.append(f"{name} is not carried: it is a link to a directory elsewhere ({end})")
        elif _is_program(place) or not place.is_file():
            made.symlink_to(end if text.is_absolute() else os.path.relpath(end, (self._tree / name).parent))
        else:
            self._copy_file(name, place, place.stat(), made)


def _is_program(place: Path) -> bool:
    """Whether a link leads to something to be run, such as the interpreter of a virtual environment, which looks for its library beside it."""
    return place.is_file() and os.access(place, os.X_OK)


def _clear(place: Path) -> None:
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place, ignore_errors=True)
    else:
        place.unlink(missing_ok=True)


def _rewrite(file: Path, old: str, new: str) -> None:
    """Replace the path ``old`` by ``new`` where it stands as a whole path or begins one."""
    text = file.read_bytes()
    changed = re.sub(re.escape(os.fsencode(old)) + rb"(?![\w.-])", lambda _: os.fsencode(new), text)
    if changed != text:
        file.write_bytes(changed)


def _lstat(path: Path) -> os.stat_result | None:
    try:
        return path.lstat()
    except FileNotFoundError:
        return None
