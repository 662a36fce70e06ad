"""Git directories that go with a worktree, of repositories inside it: kept as they are, and put back where they were.

What they have, no commit of ours can hold: branches, stashes, what is staged, what filters have stored. They are copied, objects by hard links where
the file system has those, to numbered directories beside a list of them. All are there under the folder's name, or none is: a kill may come between.
"""

import json
import os
import shutil
from collections.abc import Collection
from dataclasses import asdict, dataclass, replace
from errno import EIO, ENOENT
from pathlib import Path
from stat import S_ISLNK, S_ISREG
from typing import Final

from rametd.git.context import GitContext
from rametd.git.inside import git_dir_at, modules, only_here
from rametd.git.nested import Nested
from rametd.git.registrations import existing_git_dir
from rametd.git.removal import delete_tree

_LIST: Final = "list.json"


@dataclass(frozen=True, slots=True)
class GitDir:
    """``place`` is that of its files, relative to the worktree, "" where none are; ``path`` its own, absolute.

    ``module``: where it lies below the ``modules`` of the git directory of its worktree, which is the one ``around``, relative to ours. Without, it is
    the ``.git`` in its place, unless ``stays``: then that leads to it, and it does not go.
    """

    place: str
    path: str
    module: str = ""
    around: str = ""
    stays: bool = False

    @property
    def name(self) -> str:
        """What people are told of it."""
        return self.place or self.module


async def collect(git: GitContext, common: Path, worktree: Path, git_dir: Path, below: Nested) -> tuple[GitDir, ...]:
    """Of the repositories that were found below a worktree, those that lie in it, and the submodules that have something of their own."""
    kept = {place for _, place in below.kept}
    goes = git_dir != common
    found: list[GitDir] = []
    for place, inner in below.stood.items():
        if inner == (worktree / place).resolve() / ".git":
            found.append(GitDir(place, str(inner)))
        elif goes and inner.is_relative_to(git_dir / "modules"):
            module = inner.relative_to(git_dir / "modules").as_posix()
            if place in kept or await only_here(git, worktree / place, inner, common / "modules" / module):
                found.append(GitDir(place, str(inner), module))
        else:
            found.append(GitDir(place, str(inner), stays=True))
    left = await left_over(git, common, git_dir, below.stood.values()) if goes else {}
    return (*found, *(GitDir("", str(git_dir / "modules" / module), module) for module in left))


async def left_over(git: GitContext, common: Path, git_dir: Path, known: Collection[Path]) -> dict[str, list[str]]:
    """By path below ``modules``, the submodules that are not there any more and what only they have, in words."""
    found = await git.compute(modules, git_dir)
    words = {
        module: await only_here(git, None, inner, common / "modules" / module)
        for module, inner in found.items()
        if inner not in known
    }
    return {module: each for module, each in words.items() if each}


def inside(around: str, each: GitDir) -> GitDir:
    """The same, as the worktree that has a worktree ``around`` it inside sees it."""
    place = f"{around}/{each.place}" if each.place else ""
    return replace(each, place=place, around=f"{around}/{each.around}".rstrip("/"))


def keep(found: Collection[GitDir], folder: Path) -> None:
    """Copy them to a folder that is not there yet. Raises OSError; blocks."""
    part = folder.with_name(f".{folder.name}.part")
    delete_tree(part)
    part.mkdir(parents=True)
    try:
        for number, each in enumerate(found):
            if not each.stays:
                _copy(Path(each.path), part / str(number))
        (part / _LIST).write_text(json.dumps([asdict(each) for each in found]))
        part.rename(folder)
    finally:
        delete_tree(part)


def read(folder: Path) -> list[GitDir]:
    """What is in such a folder, by number; blocks."""
    return [GitDir(**each) for each in json.loads((folder / _LIST).read_text())]


def put_back(folder: Path, worktree: Path) -> tuple[list[str], list[str]]:
    """The places whose git directories are back, and in words what could not be; may be done again. Blocks."""
    back: list[str] = []
    left: list[str] = []
    for number, each in enumerate(read(folder)):
        place, source = worktree / each.place, folder / str(number)
        try:
            if each.module:
                _put_module(each, source, worktree)
            elif each.stays:
                if (Path(each.path) / "HEAD").is_file() and not os.path.lexists(place / ".git"):
                    _point(place, Path(each.path))
            elif not (place / ".git").is_dir():
                (place / ".git").unlink(missing_ok=True)  # of a submodule that was filled anew
                _put(source, place / ".git")
        except OSError as error:
            left.append(f"{each.name}: {error.strerror or error}")
        else:
            back += [each.place] if each.place and git_dir_at(place) is not None else []
    return back, left


def _put_module(each: GitDir, source: Path, worktree: Path) -> None:
    around = existing_git_dir(worktree / each.around)
    if around is None:
        raise FileNotFoundError(ENOENT, "its worktree is not there", each.around)
    target = around / "modules" / each.module
    delete_tree(target)  # as it was filled anew: nobody has worked in it
    _put(source, target)
    if each.place:
        _point(worktree / each.place, target)


def _point(place: Path, git_dir: Path) -> None:
    place.mkdir(parents=True, exist_ok=True)
    (place / ".git").unlink(missing_ok=True)
    (place / ".git").write_text(f"gitdir: {os.path.relpath(git_dir, place.resolve())}\n")


def _put(source: Path, target: Path) -> None:
    part = target.with_name(f".{target.name}.part")
    delete_tree(part)
    target.parent.mkdir(parents=True, exist_ok=True)
    _copy(source, part)
    part.rename(target)


def _copy(source: Path, target: Path) -> None:
    def copy(one: str, other: str) -> str:
        if "objects" in Path(one).relative_to(source).parts[:-1]:  # which nobody writes to once they are there
            try:
                os.link(one, other, follow_symlinks=False)
            except OSError:  # another file system, or none that has them
                pass
            else:
                return other
        mode = Path(one).lstat().st_mode
        # Such as the socket of a git that watches files, which is nobody's work.
        return str(shutil.copy2(one, other, follow_symlinks=False)) if S_ISREG(mode) or S_ISLNK(mode) else other

    try:
        shutil.copytree(source, target, symlinks=True, copy_function=copy)
    except shutil.Error as error:
        (one, _, why), *_ = error.args[0]  # which has the system's words with a number before them and names after them
        raise OSError(EIO, str(why).partition("] ")[2].partition(":")[0] or str(why), str(one)) from error
