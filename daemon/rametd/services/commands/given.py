"""What was carried into a worktree, noted in its git directory: each file is given once, and is whoever works there's own from then on.

Only what a spare was given is brought up to date, and that only while nobody has changed it.
"""

import json
import os
from dataclasses import dataclass, field
from pathlib import Path

from rametd.git import existing_git_dir

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
