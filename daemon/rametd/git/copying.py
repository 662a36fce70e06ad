"""Objects of one repository in another one."""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from rametd.domain.errors import GitFailedError
from rametd.git.context import GitContext

_LOOSE: Final = 100
"""So many new objects are stored one by one; more of them make a pack."""


async def absent(git: GitContext, git_dir: Path, objects: Iterable[str]) -> set[str]:
    """Those that a repository does not have."""
    stdin = "".join(f"{name}\n" for name in objects).encode()
    there = (f"--git-dir={git_dir}", f"--work-tree={git_dir}")
    output = await git.process.read(git_dir, *there, "cat-file", "--batch-check", stdin=stdin)
    return {line.split(" ")[0] for line in output.decode().splitlines() if line.endswith(" missing")}


async def copy_objects(git: GitContext, source: Path, target: Path, *names: str) -> None:
    """Copy commits and trees of the repository ``source``, with all that they need and ``target`` does not have yet. Raises GitFailedError."""
    there = (f"--git-dir={source}", f"--work-tree={source}")
    listed = await git.process.read(source, *there, "rev-list", "--objects", "--no-object-names", *names, "--")
    missing = await absent(git, target, listed.decode().split())
    if missing:
        stdin = "".join(f"{name}\n" for name in sorted(missing)).encode()
        pack = await git.process.read(source, *there, "pack-objects", "--stdout", "-q", stdin=stdin)
        store = ("unpack-objects", "-q") if len(missing) <= _LOOSE else ("index-pack", "--stdin")
        beside = (f"--git-dir={target}", f"--work-tree={target}")
        await git.process.write(target, *beside, *store, stdin=pack)
    if left := await absent(git, target, names):
        raise GitFailedError(
            f"{', '.join(each[:12] for each in sorted(left))} of {source} could not be copied",
            hint="commit or copy it by hand",
        )
