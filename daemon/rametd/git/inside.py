"""Repositories inside a worktree: find them, describe the content that only their git directories
have, and copy their objects."""

import os
import re
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Final

from ramet.words import plural

from rametd.domain.errors import GitFailedError
from rametd.git.context import GitContext
from rametd.git.obstacles import additions
from rametd.git.process import at
from rametd.git.registrations import existing_git_dir
from rametd.git.underway import begun

_LOOSE: Final = 100
"""Maximum number of new objects to store one by one; more are stored as a pack."""


async def absent(git: GitContext, git_dir: Path, objects: Iterable[str]) -> set[str]:
    """Return the objects that a repository does not have."""
    stdin = "".join(f"{name}\n" for name in objects).encode()
    there = at(git_dir, git_dir)
    output = await git.process.read(git_dir, *there, "cat-file", "--batch-check", stdin=stdin)
    return {line.split(" ")[0] for line in output.decode().splitlines() if line.endswith(" missing")}


async def copy_objects(git: GitContext, source: Path, target: Path, *names: str) -> None:
    """Copy commits and trees of the repository ``source``, with all objects that they need and
    ``target`` does not have. Raises GitFailedError."""
    there = at(source, source)
    listed = await git.process.read(source, *there, "rev-list", "--objects", "--no-object-names", *names, "--")
    missing = await absent(git, target, listed.decode().split())
    if missing:
        stdin = "".join(f"{name}\n" for name in sorted(missing)).encode()
        pack = await git.process.read(source, *there, "pack-objects", "--stdout", "-q", stdin=stdin)
        store = ("unpack-objects", "-q") if len(missing) <= _LOOSE else ("index-pack", "--stdin")
        beside = at(target, target)
        await git.process.write(target, *beside, *store, stdin=pack)
    if left := await absent(git, target, names):
        raise GitFailedError(
            f"{', '.join(each[:12] for each in sorted(left))} of {source} could not be copied",
            hint="commit or copy it by hand",
        )


_HASH: Final = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
_NAMES: Final = {"HEAD": "commits that were never pushed", "refs/heads/": "branch ", "refs/tags/": "tag "}


async def places(git: GitContext, worktree: Path, git_dir: Path, *, untracked: bool = True) -> dict[str, str | None]:
    """Return the paths of submodules with their commits in the index, and of other nested
    repositories (None).

    Include repositories in directories with tracked files of the outer repository, whose ``.git``
    git never reports. Include untracked repositories only with ``untracked``.
    """
    there = at(git_dir, worktree)
    others: list[bytes] = []
    staged = (await git.process.read(worktree, *there, "ls-files", "--stage", "-z")).split(b"\0")[:-1]
    if untracked:
        listing = ("ls-files", "--others", "--exclude-standard", "-z")
        others = (await git.process.read(worktree, *there, *listing)).split(b"\0")[:-1]
    links: dict[str, str | None] = {}
    files = [place for place in others if not place.endswith(b"/")]
    for record in staged:
        fields, _, place = record.partition(b"\t")
        if fields.startswith(b"160000 "):
            links[os.fsdecode(place)] = fields.split(b" ")[1].decode()
        else:
            files.append(place)
    made = [os.fsdecode(place.rstrip(b"/")) for place in others if place.endswith(b"/")]
    among = await git.compute(_among_files, worktree, files)
    return links | dict.fromkeys(place for place in (*made, *among) if place not in links)


async def new_links(git: GitContext, worktree: Path, there: tuple[str, str]) -> list[str]:
    """Return nested repositories, not submodules, that committing everything would record as new
    gitlinks."""
    listing = ("ls-files", "--others", "--exclude-standard", "-z")
    others = os.fsdecode(await git.process.read(worktree, *there, *listing)).split("\0")
    staged = await additions(git, worktree, there, "diff-index", "--cached", "HEAD")
    found = {path.rstrip("/") for path in others if path.endswith("/")}
    found |= {path for path, mode in staged.items() if mode == "160000"}
    if not found:
        return []
    asked = ("config", "--file", str(worktree / ".gitmodules"), "-z", "--get-regexp", r"^submodule\..*\.path$")
    named = os.fsdecode((await git.process.run(worktree, *asked)).stdout).split("\0")
    return sorted(found - {record.partition("\n")[2] for record in named})


def _among_files(worktree: Path, files: Iterable[bytes]) -> list[str]:
    folders: set[bytes] = set()
    for path in files:
        folder = path.rpartition(b"/")[0]
        while folder and folder not in folders:
            folders.add(folder)
            folder = folder.rpartition(b"/")[0]
    top = worktree.resolve()
    found = [top / place for place in sorted(map(os.fsdecode, folders)) if os.path.lexists(f"{top}/{place}/.git")]
    # A symbolic link that replaced a directory leads elsewhere.
    return [str(each.relative_to(top)) for each in found if each.resolve() == each]


def git_dir_at(directory: Path) -> Path | None:
    """Return the git directory of a usable repository whose top is the directory, or None.
    Blocks."""
    git_dir = existing_git_dir(directory)
    return git_dir if git_dir is not None and (git_dir / "HEAD").is_file() else None


def modules(git_dir: Path) -> dict[str, Path]:
    """Return the git directories of submodules inside another git directory, by path below its
    ``modules``; blocks."""

    def find(folder: Path) -> Iterator[Path]:
        for each in sorted(folder.iterdir()) if folder.is_dir() else ():
            if (each / "HEAD").is_file():
                yield each
                yield from find(each / "modules")
            elif each.is_dir():  # a submodule's name may contain slashes
                yield from find(each)

    top = git_dir / "modules"
    return {each.relative_to(top).as_posix(): each for each in find(top)}


async def only_here(git: GitContext, directory: Path | None, inner: Path, elsewhere: Path | None) -> list[str]:
    """Describe the content that only this git directory has, and that is not in the files in
    ``directory``, its remotes, or the git directory ``elsewhere``. Content that cannot be checked
    counts as such."""
    try:
        found = await _commits(git, inner, elsewhere)
        found += await staged_only(git, directory, inner) if directory is not None else []
    except GitFailedError as error:
        found = [error.message]
    return [*found, *await git.compute(under_way, inner)]


def under_way(git_dir: Path) -> list[str]:
    """Describe an unfinished merge, rebase or the like; blocks."""
    return [f"a {what} that is under way" for what in begun(git_dir)]


async def _commits(git: GitContext, inner: Path, elsewhere: Path | None) -> list[str]:
    # Name a work tree, as the configured one may be gone.
    there = at(inner, inner)
    head = await git.process.run(inner, *there, "rev-parse", "--verify", "--quiet", "HEAD^{commit}")
    starts = (*(["HEAD"] if head.returncode == 0 else []), "--exclude=refs/remotes/*", "--all")
    known = await git.compute(of_remotes, inner)
    listing = ("log", "--source", "--ignore-missing", "--format=%H %S", *starts, "--not", *known, "--")
    newest: dict[str, str] = {}
    for line in os.fsdecode(await git.process.read(inner, *there, *listing)).splitlines():
        commit, _, source = line.partition(" ")
        newest.setdefault(source, commit)
    if newest and elsewhere is not None and await git.compute((elsewhere / "HEAD").is_file):
        missing = await absent(git, elsewhere, newest.values())
        newest = {source: commit for source, commit in newest.items() if commit in missing}
    words = []
    for source in newest:
        start = next((start for start in _NAMES if source.startswith(start)), None)
        words += [_NAMES[start] + source.removeprefix(start)] if start else [source] if source != "refs/stash" else []
    if "refs/stash" in newest:
        stashes = await git.process.read(inner, *there, "log", "-g", "--format=%H", "refs/stash", "--")
        words.append(plural(len(stashes.split()), "stash"))
    return words


def of_remotes(git_dir: Path) -> tuple[str, ...]:
    """Return arguments for git after ``--not`` that name all commits from remotes. A commit fetched
    by its hash, as for a shallow submodule, is on no remote branch. Blocks."""
    try:
        lines = (git_dir / "FETCH_HEAD").read_text(errors="replace").splitlines()
    except OSError:  # nothing was fetched
        lines = []
    fetched = dict.fromkeys(line.split("\t")[0] for line in lines if not line.endswith(" of ."))
    return ("--remotes", *(name for name in fetched if _HASH.fullmatch(name)))


async def staged_only(git: GitContext, directory: Path, inner: Path) -> list[str]:
    """Describe staged content that differs from the files."""
    there = at(inner, directory)
    listing = ("status", "--porcelain", "-z", "--untracked-files=no", "--no-renames")
    status = await git.process.read(directory, *there, *listing)
    lines = [line for line in status.split(b"\0") if line]
    staged = [os.fsdecode(line[3:]) for line in lines if line[:1] in b"MA" and line[1:2] in b"MD"]
    return [f"what is staged of {', '.join(staged)}"] if staged else []


async def orphaned_modules(
    git: GitContext, common: Path, git_dir: Path, known: Collection[Path]
) -> dict[str, list[str]]:
    """Describe the content that only git directories of removed submodules have, by path below
    ``modules``."""
    found = await git.compute(modules, git_dir)
    words = {
        module: await only_here(git, None, inner, common / "modules" / module)
        for module, inner in found.items()
        if inner not in known
    }
    return {module: each for module, each in words.items() if each}
