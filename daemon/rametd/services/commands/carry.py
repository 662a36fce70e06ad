"""Carrying ignored files that a tree needs from the main worktree into a new one.

Candidates are what git ignores there. A directory that is ignored as a whole (``node_modules``) is one candidate: what is in it is looked at
only where a pattern names a place inside it, so that ``.env*`` does not gather the environments of a thousand packages.

What comes into the new worktree is ignored there too, or is left out: the next ``git add`` must not take a secret along. Nothing takes the place of
what is there, but for what a spare was given earlier and nobody has changed since (`given`).
"""

import asyncio
import os
import re
import shutil
import stat
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from pathspec import GitIgnoreSpec
from ramet.words import plural

from rametd.config import Config
from rametd.domain.errors import RametError
from rametd.services.commands.given import Given, read_given, write_given
from rametd.services.core import Core
from rametd.services.words import listed

INCLUDE_FILE = ".worktreeinclude"
REWRITE_LIMIT = 16 << 20
"""Bytes of a file in which paths are rewritten."""


@dataclass(slots=True)
class Carried:
    """What came of it: files and bytes copied, links made, and one line for each thing that was not done."""

    files: int = 0
    bytes: int = 0
    links: int = 0
    words: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Order:
    """What to carry, as patterns in gitignore's syntax. ``limit`` is bytes."""

    carry: tuple[str, ...]
    link: tuple[str, ...]
    rewrite: tuple[str, ...]
    limit: int


@dataclass(frozen=True, slots=True)
class Chosen:
    """Paths from the source; a directory, of which there are only those to be linked, ends in ``/``."""

    copied: tuple[str, ...] = ()
    linked: tuple[str, ...] = ()

    @property
    def asked(self) -> tuple[str, ...]:
        """What may be ignored in the new worktree: in the place of a directory that is linked, a link or a directory."""
        return (*self.copied, *self.linked, *(path.rstrip("/") for path in self.linked if path.endswith("/")))


async def carry(core: Core, source: Path, tree: Path, config: Config, *, settle: bool) -> Carried:
    """Bring what the configuration and ``.worktreeinclude`` name from the worktree ``source`` into ``tree``. Never fatal.

    ``settle``: a session has the tree, and what it has been given is its own from now on.
    """
    included = await asyncio.to_thread(_included, source)
    patterns = (*config.carry, *included, *config.carry_link)
    if not patterns or source == tree:
        return Carried()
    done = Carried()
    order = Order(patterns, config.carry_link, config.carry_rewrite, config.carry_limit)
    try:
        candidates = await core.git.ignored_files(source)
        chosen = await asyncio.to_thread(choose, source, tree, candidates, order, done)
        if chosen.asked:
            ignored = await core.git.ignored_among(tree, chosen.asked)
            given = await asyncio.to_thread(read_given, tree)
            await asyncio.to_thread(bring, source, tree, chosen, ignored, order, given, done)
            given.settled |= settle
            await asyncio.to_thread(write_given, tree, given)
    except RametError as error:
        done.words.append(f"nothing is carried: {error.message}")
    except OSError as error:
        done.words.append(f"what was carried cannot be noted: {error.strerror}")
    return done


def _included(source: Path) -> tuple[str, ...]:
    try:
        return tuple((source / INCLUDE_FILE).read_text(encoding="utf-8", errors="replace").split("\n"))
    except OSError:
        return ()


def choose(source: Path, tree: Path, candidates: Sequence[str], order: Order, done: Carried) -> Chosen:
    """Those of ``candidates`` (paths from ``source``, directories ending in ``/``) that the order names. Blocks."""
    wanted, linked = (_spec(lines, done) for lines in (order.carry, order.link))
    copies: list[str] = []
    links: list[str] = []
    for path in _named(source, candidates, wanted, linked, order.carry):
        if not _is_open(tree, path):
            words = "what lies above it in the new worktree is no directory"
            done.words.append(f"{path.rstrip('/')} is not carried: {words}")
        else:
            (links if linked.match_file(path) else copies).append(path)
    return Chosen(tuple(copies), tuple(links))


def bring(
    source: Path, tree: Path, chosen: Chosen, ignored: Collection[str], order: Order, given: Given, done: Carried
) -> None:
    """Copy and link what was chosen and is ``ignored`` in the tree; ``given`` and ``done`` tell of it then. Blocks."""
    rewritten = _spec(order.rewrite, done)
    too_much: list[str] = []
    exposed: list[str] = []
    with _scratch(tree) as scratch:
        for path in (*chosen.linked, *chosen.copied):
            name = path.rstrip("/")
            if given.settled and name in given.files:
                continue  # it had it once: whatever has become of that is not ours
            if name not in ignored and path not in ignored:
                exposed.append(name)
                continue
            try:
                seen, target = (source / name).lstat(), tree / name
                if not _is_wanted(name, seen, target, given, done):
                    continue
                target.parent.mkdir(parents=True, exist_ok=True)
                if path in chosen.linked:
                    done.links += _link(source / name, target, whole=name in ignored)
                elif done.bytes + seen.st_size > order.limit and stat.S_ISREG(seen.st_mode):
                    too_much.append(name)
                    continue
                else:
                    moves = (str(source), str(tree)) if rewritten.match_file(path) else None
                    _copy(source / name, seen, target, scratch, moves)
                    done.files += 1
                    done.bytes += seen.st_size if stat.S_ISREG(seen.st_mode) else 0
                given.note(name, seen, target)
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


def _named(
    source: Path, candidates: Sequence[str], wanted: GitIgnoreSpec, linked: GitIgnoreSpec, patterns: Sequence[str]
) -> Iterator[str]:
    inside = [pattern.strip().lstrip("!/") for pattern in patterns]
    for candidate in candidates:
        if _is_forbidden(candidate):
            continue
        if not candidate.endswith("/"):
            if wanted.match_file(candidate):
                yield candidate
        elif linked.match_file(candidate):
            yield candidate
        elif wanted.match_file(candidate) or any(pattern.startswith(candidate) for pattern in inside):
            yield from (path for path in _files_in(source, candidate) if wanted.match_file(path))


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


def _copy(source: Path, seen: os.stat_result, target: Path, scratch: Path, moves: tuple[str, str] | None) -> None:
    """Whole or not at all; with ``moves`` the path that is its first is replaced by the second."""
    made = scratch / "copy"
    with suppress(FileNotFoundError):
        made.unlink()
    if stat.S_ISLNK(seen.st_mode):
        made.symlink_to(source.readlink())
    else:
        descriptor = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as out, source.open("rb") as file:
            shutil.copyfileobj(file, out, 1 << 20)
        if moves is not None and seen.st_size <= REWRITE_LIMIT:
            _rewrite(made, *moves)
        shutil.copystat(source, made)
    made.rename(target)


def _link(source: Path, target: Path, *, whole: bool) -> int:
    """Links made: one in its place, or, where only a directory is ignored there (``node_modules/``), one for each thing that is in it."""
    if whole:
        target.symlink_to(source, target_is_directory=source.is_dir())
        return 1
    target.mkdir()
    within = [each for each in source.iterdir() if each.name != ".git"]
    for each in within:
        (target / each.name).symlink_to(each, target_is_directory=each.is_dir())
    return len(within)


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
