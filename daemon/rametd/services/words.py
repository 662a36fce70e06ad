"""Short texts for people."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from rametd.domain.text import first_line

__all__ = ["first_line", "listed", "pruned_by"]


def listed(names: Sequence[str], limit: int = 3) -> str:
    return ", ".join(names[:limit]) + (", …" if len(names) > limit else "")


def pruned_by(root: Path, remote: str) -> str:
    """Warning about a remote whose branches overwrite the repository's own at a fetch."""
    beside = shlex.join(
        (
            "git",
            "-C",
            str(root),
            "config",
            "--replace-all",
            f"remote.{remote}.fetch",
            f"+refs/heads/*:refs/remotes/{remote}/*",
        )
    )
    return (
        f"this repository mirrors {remote}: `git fetch --prune` would delete branches of sessions, and their snapshots;"
        f" leave --prune out, or fetch its branches beside yours: {beside}"
    )
