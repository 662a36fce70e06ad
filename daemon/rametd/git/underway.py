"""State that only the git directory of a worktree has: an unfinished merge, rebase or bisect, and
the index."""

import contextlib
import os
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rametd.git.context import GitContext
from rametd.git.repository import RepositoryInfo, commit_exists, common_dir, head_of, open_repository

_BEGUN: Final = {
    "rebase-merge": "rebase",
    "rebase-apply": "rebase",
    "MERGE_HEAD": "merge",
    "CHERRY_PICK_HEAD": "cherry-pick",
    "REVERT_HEAD": "revert",
    "BISECT_START": "bisect",
}
"""Git's commands, by the file that exists in the git directory until the command ends."""
_PENDING: Final = (
    *("MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD"),
    *("rebase-merge/orig-head", "rebase-apply/orig-head", "BISECT_START"),
)
"""Files in which git records the commits of an unfinished command, which no ref may have."""
_AUTOSTASHES: Final = ("rebase-merge/autostash", "rebase-apply/autostash", "MERGE_AUTOSTASH")
"""Files in which git records the autostash of an unfinished rebase or merge, which no ref has."""
_NOTHING: Final = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
"""The empty tree, which git has without storing it."""
_HASH: Final = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True, slots=True)
class UnderWay:
    """``what``: one word for each command. ``pending``: its commits, and those of the worktree's
    own refs (`refs/worktree/`); ``autostashes``: the commits of its autostashes."""

    what: tuple[str, ...] = ()
    pending: tuple[str, ...] = ()
    autostashes: tuple[str, ...] = ()


async def refuse_locked(git: GitContext, git_dir: Path) -> None:
    """Refuse to change a worktree while another git has its index, its HEAD or its branch locked:
    the files would change, and HEAD or the branch would stay. Raise GitBusyError.

    A git that was killed leaves such a lock for ever.
    """

    def locks() -> list[Path]:
        branch = head_of(open_repository(git_dir)).branch
        own = [git_dir / "index.lock", git_dir / "HEAD.lock"]
        return [*own, common_dir(git_dir) / f"refs/heads/{branch}.lock"] if branch else own

    await git.process.refuse_locked(await git.compute(locks))


def begun(git_dir: Path) -> tuple[str, ...]:
    """List the unfinished git commands ("merge") of a git directory, the outermost first.
    Blocks."""
    try:
        names = frozenset(os.listdir(git_dir))  # noqa: PTH208  one call for each of a thousand sessions
    except FileNotFoundError:
        return ()
    found = [command for name, command in _BEGUN.items() if name in names]
    if "sequencer" in names:  # a cherry-pick or revert of several commits has no other file between two of them
        todo = git_dir / "sequencer" / "todo"
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            found.append("revert" if todo.read_bytes().startswith(b"revert") else "cherry-pick")
    return tuple(dict.fromkeys(found))


def busy_with(git_dir: Path) -> str:
    """Name the outermost git command under way for a message ("a merge"), "" if there is none.
    Blocks."""
    commands = begun(git_dir)
    return f"a {commands[0]}" if commands else ""


def ending_commands(worktree: Path, busy: str) -> tuple[str, ...]:
    """Shell commands that end the git command that `busy_with` names: one continues it, one aborts
    it."""
    command = busy.removeprefix("a ")
    ends = ("reset",) if command == "bisect" else ("--continue", "--abort")
    return tuple(shlex.join(("git", "-C", str(worktree), command, end)) for end in ends)


def ending_words(worktree: Path, busy: str) -> str:
    """The commands of `ending_commands` in a sentence."""
    return " or ".join(f"`{command}`" for command in ending_commands(worktree, busy))


def under_way(repo: RepositoryInfo, git_dir: Path) -> UnderWay:
    """Read the state from the files of a worktree's git directory. Blocks."""
    own = tuple(str(file.relative_to(git_dir)) for file in (git_dir / "refs" / "worktree").rglob("*"))
    pending = _commits(repo, git_dir, (*_PENDING, *own))
    return UnderWay(begun(git_dir), pending, _commits(repo, git_dir, _AUTOSTASHES))


def _commits(repo: RepositoryInfo, git_dir: Path, names: tuple[str, ...]) -> tuple[str, ...]:
    found: list[str] = []
    for name in names:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError):
            found += _HASH.findall((git_dir / name).read_text(errors="replace"))
    return tuple(commit for commit in dict.fromkeys(found) if commit_exists(repo, commit))


async def staged_paths(git: GitContext, git_dir: Path, commit: str | None) -> tuple[str, ...]:
    """Return the paths at which an index differs from ``commit`` (None: the empty tree), without
    reading files."""
    if not await git.compute((git_dir / "index").is_file):
        return ()
    arguments = ("diff-index", "--cached", "--name-only", "--no-renames", "-z", commit or _NOTHING, "--")
    listed = await git.process.read(git_dir, f"--git-dir={git_dir}", *arguments)
    return tuple(os.fsdecode(path) for path in listed.split(b"\0") if path)
