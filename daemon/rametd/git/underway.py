"""What is under way in a worktree, a merge, a rebase, a bisect, and what its index holds: what only its git directory knows."""

import contextlib
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rametd.git.context import GitContext
from rametd.git.repository import RepositoryInfo, commit_exists

_BEGUN: Final = {"MERGE_HEAD": "merge", "CHERRY_PICK_HEAD": "cherry-pick", "REVERT_HEAD": "revert", "rebase-merge": "rebase",
                 "rebase-apply": "rebase", "BISECT_LOG": "bisect"}  # fmt: skip
_PENDING: Final = (
    *("MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD"),
    *("rebase-merge/orig-head", "rebase-apply/orig-head", "BISECT_START"),
)
"""Where git notes the commits that are to come in, or at which it began: no ref need have them."""
_AUTOSTASHES: Final = ("rebase-merge/autostash", "rebase-apply/autostash", "MERGE_AUTOSTASH")
"""Where git notes the commit with what was uncommitted before a rebase or merge, until that is over: no ref has it."""
_NOTHING: Final = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
"""The tree without files, which git knows by itself."""
_HASH: Final = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True, slots=True)
class UnderWay:
    """``what``: in a word each. ``pending``: the commits that it is about, and those of refs that are the worktree's own (`refs/worktree/`);
    ``autostashes``: those that git put aside for it."""

    what: tuple[str, ...] = ()
    pending: tuple[str, ...] = ()
    autostashes: tuple[str, ...] = ()


def begun(git_dir: Path) -> tuple[str, ...]:
    """What is under way by a git directory, in a word each. Blocks."""
    return tuple(dict.fromkeys(words for name, words in _BEGUN.items() if (git_dir / name).exists()))


def under_way(repo: RepositoryInfo, git_dir: Path) -> UnderWay:
    """By the files in a worktree's git directory. Blocks."""
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
    """The paths that an index has otherwise than ``commit`` (None: nothing), without a look at any files."""
    if not await git.compute((git_dir / "index").is_file):
        return ()
    arguments = ("diff-index", "--cached", "--name-only", "--no-renames", "-z", commit or _NOTHING, "--")
    listed = await git.process.read(git_dir, f"--git-dir={git_dir}", *arguments)
    return tuple(os.fsdecode(path) for path in listed.split(b"\0") if path)
