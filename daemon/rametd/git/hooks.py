"""The person's git hooks. Git runs those of a trusted repository for pushes, and for commits that
Ramet makes for the person. All other git commands of Ramet run without hooks.

A relative `core.hooksPath` is one in the person's own checkout: an agent can write the copy in its
worktree.
"""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rametd.git.context import GitContext
from rametd.git.process import Completed, clean_environment
from rametd.git.repository import RepositoryInfo

PUSH: Final = ("pre-push",)
COMMIT: Final = ("pre-commit", "prepare-commit-msg", "commit-msg")

_LINES: Final = 20
"""Maximum number of lines of a hook's output in a message: the last ones, which have the reason."""
_PORCELAIN: Final = re.compile(r"[ +\-*=!]\t")
"""Beginning of a line about a ref in the output of `git push --porcelain`."""
_GITS_OWN: Final = ("remote:", "To ", "hint:", "error: failed to push some refs", "Done", "Everything up-to-date")


@dataclass(frozen=True, slots=True)
class Hooks:
    """``names`` are the hooks that exist and can run; empty if git would run none."""

    folder: Path
    names: tuple[str, ...]

    @property
    def options(self) -> tuple[str, ...]:
        """Options with which git runs them. They follow the option that turns hooks off, and so
        override it."""
        return ("-c", f"core.hooksPath={self.folder}") if self.names else ()


async def hooks_folder(git: GitContext, repo: RepositoryInfo, environment: Mapping[str, str]) -> Path:
    """Return the directory from which the person's git runs hooks; it need not exist."""
    listing = ("config", "--type=path", "--show-scope", "-z", "--get-all", "core.hooksPath")
    done = await git.process.run(repo.standpoint, *listing, environment=clean_environment(environment))
    fields = os.fsdecode(done.stdout).split("\0")
    configured = [value for scope, value in zip(fields[0::2], fields[1::2], strict=False) if scope != "command"]
    return repo.root / configured[-1] if configured else repo.common_dir / "hooks"


async def find_hooks(
    git: GitContext, repo: RepositoryInfo, environment: Mapping[str, str], wanted: Sequence[str]
) -> Hooks:
    """The hooks among ``wanted`` that the person's git would run."""
    folder = await hooks_folder(git, repo, environment)

    def present() -> tuple[str, ...]:
        return tuple(name for name in wanted if os.access(folder / name, os.X_OK) and (folder / name).is_file())

    return Hooks(folder, await git.compute(present))


def words_of_hooks(done: Completed) -> str:
    """Return in one line the output of hooks: that of a git command without git's own lines."""
    text = (done.stderr + b"\n" + done.stdout).decode(errors="replace")
    lines = [line.strip() for line in text.splitlines() if not _PORCELAIN.match(line)]
    own = [line for line in lines if line and not line.startswith(_GITS_OWN)]
    return "; ".join(own[-_LINES:])[:1200]
