"""Words for people, made short."""

import shlex
from collections.abc import Sequence
from pathlib import Path


def first_line(words: str, limit: int = 200) -> str:
    """The first line that says something, cut at ``limit`` characters."""
    for line in words.splitlines():
        if stripped := line.strip():
            return stripped if len(stripped) <= limit else stripped[: limit - 1] + "…"
    return ""


def listed(names: Sequence[str], limit: int = 3) -> str:
    return ", ".join(names[:limit]) + (", …" if len(names) > limit else "")


def pruned_by(root: Path, remote: str) -> str:
    """What is told where a remote's branches are fetched over the repository's own."""
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
        f"this repository mirrors {remote}: `git fetch --prune` would delete branches of sessions, and what is kept of them;"
        f" leave --prune out, or have its branches beside yours: {beside}"
    )
