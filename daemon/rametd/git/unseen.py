"""What lies in a worktree and git does not look at: directories without files, pipes, sockets, devices. Ignored ones count as ignored."""

import os
import stat
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rametd.git.context import GitContext
from rametd.git.process import failed

_KINDS: Final = {
    stat.S_IFIFO: "named pipe",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "device",
    stat.S_IFBLK: "device",
}


@dataclass(frozen=True, slots=True)
class Unseen:
    """Paths relative to the worktree. ``special``: each with what it is, in words."""

    empty: tuple[str, ...] = ()
    special: tuple[tuple[str, str], ...] = ()


async def look(git: GitContext, worktree: Path, git_dir: Path, apart: Collection[str]) -> Unseen:
    """``apart`` are the places of repositories inside, which are looked at on their own."""
    there = (f"--git-dir={git_dir}", f"--work-tree={worktree}")
    listing = ("ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory")
    output = await git.process.read(worktree, *there, *listing)
    ignored = {os.fsdecode(path.rstrip(b"/")) for path in output.split(b"\0") if path.endswith(b"/")}
    found = await git.compute(_walk, worktree, ignored.union(apart))
    if not found.empty and not found.special:
        return found
    paths = b"".join(os.fsencode(path) + b"\0" for path in (*found.empty, *(path for path, _ in found.special)))
    done = await git.process.run(worktree, *there, "check-ignore", "-z", "--stdin", stdin=paths)
    if done.returncode not in {0, 1}:  # 1: none of them
        raise failed(done, ("check-ignore",))
    hidden = {os.fsdecode(path) for path in done.stdout.split(b"\0")}
    return Unseen(
        tuple(path for path in found.empty if path not in hidden),
        tuple(each for each in found.special if each[0] not in hidden),
    )


def _walk(worktree: Path, apart: Collection[str]) -> Unseen:
    empty: list[str] = []
    special: list[tuple[str, str]] = []
    ahead = [""]
    while ahead:
        directory = ahead.pop()
        try:
            entries = sorted(os.scandir(worktree / directory), key=lambda entry: entry.name)
        except (PermissionError, FileNotFoundError):  # git tells of the first
            continue
        files = 0
        for entry in entries:
            path = f"{directory}/{entry.name}" if directory else entry.name
            if entry.is_dir(follow_symlinks=False):
                files += 1
                if path not in apart and path != ".git" and not os.path.lexists(worktree / path / ".git"):
                    ahead.append(path)
            elif entry.is_file(follow_symlinks=False) or entry.is_symlink():
                files += 1
            else:
                kind = _KINDS.get(stat.S_IFMT(entry.stat(follow_symlinks=False).st_mode), "special file")
                special.append((path, kind))
        if not files and directory:
            empty.append(directory)
    return Unseen(tuple(sorted(empty)), tuple(sorted(special)))


def make_empty(worktree: Path, places: Collection[str]) -> None:
    """Make the directories again, where nothing else is by now. Blocks."""
    for place in places:
        target = worktree / place
        if not any(
            os.path.lexists(each) and (each.is_symlink() or not each.is_dir()) for each in _way(worktree, target)
        ):
            target.mkdir(parents=True, exist_ok=True)


def _way(worktree: Path, target: Path) -> list[Path]:
    """The target and what leads to it, below the worktree: a link that came by now would lead out."""
    return [each for each in (target, *target.parents) if each != worktree and each.is_relative_to(worktree)]
