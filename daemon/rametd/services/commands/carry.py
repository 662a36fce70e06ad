"""Carrying ignored files that a tree needs from the main worktree into a new one.

Candidates are what git ignores there. A directory that is ignored as a whole (``node_modules``) is one candidate: what is in it is looked at
only where a pattern names a place inside it, so that ``.env*`` does not gather the environments of a thousand packages.
"""

import asyncio
import os
import re
import shutil
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from pathspec import GitIgnoreSpec
from ramet.words import plural

from rametd.config import Config
from rametd.domain.errors import RametError
from rametd.services.core import Core

INCLUDE_FILE = ".worktreeinclude"
REWRITE_LIMIT = 16 << 20
"""Bytes of a file in which paths are rewritten."""
NAMED = 3


@dataclass(slots=True)
class Carried:
    """What came of it: files and bytes copied, links made, and one line for each thing that was not done."""

    files: int = 0
    bytes: int = 0
    links: int = 0
    words: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Order:
    """What to carry, as patterns in gitignore's syntax. ``limit`` is bytes; ``replace`` what is there already and differs."""

    carry: tuple[str, ...]
    link: tuple[str, ...]
    rewrite: tuple[str, ...]
    limit: int
    replace: bool


async def carry(core: Core, source: Path, tree: Path, config: Config, *, replace: bool) -> Carried:
    """Bring what the configuration and ``.worktreeinclude`` name from the worktree ``source`` into ``tree``. Never fatal."""
    included = await asyncio.to_thread(_included, source)
    patterns = (*config.carry, *included, *config.carry_link)
    if not patterns or source == tree:
        return Carried()
    try:
        candidates = await core.git.ignored_files(source)
    except RametError as error:
        return Carried(words=[f"nothing is carried: {error.message}"])
    order = Order(patterns, config.carry_link, config.carry_rewrite, config.carry_limit, replace)
    return await asyncio.to_thread(bring, source, tree, candidates, order)


def _included(source: Path) -> tuple[str, ...]:
    try:
        return tuple((source / INCLUDE_FILE).read_text(encoding="utf-8", errors="replace").splitlines())
    except OSError:
        return ()


def bring(source: Path, tree: Path, candidates: Sequence[str], order: Order) -> Carried:
    """Copy or link those of ``candidates`` (paths from ``source``, directories ending in ``/``) that the order names. Blocks."""
    done = Carried()
    wanted, linked, rewritten = (_spec(lines, done) for lines in (order.carry, order.link, order.rewrite))
    left_out: list[str] = []
    for path in _chosen(source, candidates, wanted, linked, order.carry):
        name = path.rstrip("/")
        target = _target(tree, name)
        if target is None:
            done.words.append(f"{name} is not carried: what lies above it in the new worktree is no directory")
            continue
        try:
            if linked.match_file(path):
                done.links += _link(source / name, target)
                continue
            size = _copy(source / name, target, order, done.bytes)
            if size is None:
                left_out.append(name)
                continue
            done.files += 1
            done.bytes += size
            if rewritten.match_file(path):
                _rewrite(target, str(source), str(tree))
        except OSError as error:
            done.words.append(f"{name} is not carried: {error.strerror}")
    if left_out:
        names = ", ".join(left_out[:NAMED]) + (", …" if len(left_out) > NAMED else "")
        done.words.append(
            f"{plural(len(left_out), 'file')} {'is' if len(left_out) == 1 else 'are'} not carried, for that would be more than {order.limit >> 20} MiB (carry_limit): {names}"
        )
    return done


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


def _chosen(
    source: Path, candidates: Sequence[str], wanted: GitIgnoreSpec, linked: GitIgnoreSpec, patterns: Sequence[str]
) -> Iterator[str]:
    inside = [pattern.strip().lstrip("!/") for pattern in patterns]
    for candidate in candidates:
        if _inside_git(candidate):
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


def _inside_git(path: str) -> bool:
    return ".git" in path.split("/") or path.startswith("../")


def _target(tree: Path, name: str) -> Path | None:
    """Where it goes; None where a link, or a file, stands above it: what a branch holds must not lead us out of the tree."""
    place = tree
    for part in Path(name).parts[:-1]:
        place /= part
        with suppress(FileExistsError):
            place.mkdir()
        if not stat.S_ISDIR(place.lstat().st_mode):
            return None
    return tree / name


def _copy(source: Path, target: Path, order: Order, copied: int) -> int | None:
    """Bytes copied, 0 for what is there already; None where that would be too much."""
    seen = source.lstat()
    there = _lstat(target)
    if there is not None:
        same = stat.S_IFMT(there.st_mode) == stat.S_IFMT(seen.st_mode) and (
            (there.st_size, there.st_mtime_ns) == (seen.st_size, seen.st_mtime_ns)
        )
        if same or not order.replace or stat.S_ISDIR(there.st_mode):
            return 0
    if stat.S_ISLNK(seen.st_mode):
        if there is not None:
            target.unlink()
        target.symlink_to(source.readlink())
        return 0
    if not stat.S_ISREG(seen.st_mode):
        return 0  # a socket or a pipe is nobody's configuration
    if copied + seen.st_size > order.limit:
        return None
    # Written beside it and moved: a copy that a kill cut off is never taken for the file.
    scratch = target.with_name(f".{target.name}.carried")
    scratch.unlink(missing_ok=True)
    descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as out, source.open("rb") as file:
        shutil.copyfileobj(file, out, 1 << 20)
    shutil.copystat(source, scratch)
    scratch.rename(target)
    return seen.st_size


def _link(source: Path, target: Path) -> int:
    if _lstat(target) is not None:
        return 0
    target.symlink_to(source, target_is_directory=source.is_dir())
    return 1


def _rewrite(target: Path, old: str, new: str) -> None:
    """Replace the path ``old`` by ``new`` where it stands as a whole path or begins one."""
    seen = target.lstat()
    if not stat.S_ISREG(seen.st_mode) or seen.st_size > REWRITE_LIMIT:
        return
    text = target.read_bytes()
    changed = re.sub(re.escape(os.fsencode(old)) + rb"(?![\w.-])", lambda _: os.fsencode(new), text)
    if changed != text:
        target.chmod(seen.st_mode | stat.S_IWUSR)
        target.write_bytes(changed)
        target.chmod(stat.S_IMODE(seen.st_mode))


def _lstat(path: Path) -> os.stat_result | None:
    try:
        return path.lstat()
    except FileNotFoundError:
        return None
