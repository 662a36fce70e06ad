"""Git directories that an agent may have made: those inside a worktree. Nothing that their configuration names may run.

A repository that a person registered may have filters, as git-crypt and `git lfs install --local` do. A nested repository, a
submodule's git directory in a linked worktree and whatever a replaced ``.git`` file leads to are within an agent's reach: git runs
with the drivers and helpers of their configuration replaced by those of the person's own, and without any transport.
"""

import re
import subprocess
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

from rametd.git.locks import DIRECTORY

# Keys whose values are commands, or by which git would start one; with what they become where the person has none.
_RUNNING: Final = {
    re.compile(r"filter\..*\.(clean|smudge|process)", re.DOTALL): "",
    re.compile(r"filter\..*\.required", re.DOTALL): "false",
    re.compile(r"core\.(sshcommand|gitproxy|askpass|alternaterefscommand)|credential\.(.*\.)?helper", re.DOTALL): "",
    re.compile(r"remote\..*\.(promisor)|(commit|tag)\.gpgsign", re.DOTALL): "false",
    re.compile(r"gpg\.(.*\.)?program", re.DOTALL): "false",
}
ENVIRONMENT: Final = {"GIT_ALLOW_PROTOCOL": "none"}
"""No transport: a missing object of a partial clone would be fetched by a command of the configuration's choice."""


def common_of(git_dir: Path) -> Path:
    """The repository of a git directory; a linked worktree's directory, be it shelved, is one of its repository only if it lies in it."""
    try:
        pointer = (git_dir / "commondir").read_text().rstrip("\n")
    except (OSError, ValueError):
        return git_dir.resolve()
    common = (git_dir / pointer).resolve()
    return common if git_dir.resolve().parent in {common / "worktrees", common / DIRECTORY} else git_dir.resolve()


def is_foreign(git_dir: Path, trusted: Collection[Path]) -> bool:
    """Whether a git directory lies inside another repository's tree or git directory, and no person has registered it. Blocks."""
    common = common_of(git_dir)
    if common in trusted:
        return False
    inside = common.parent if common.name == ".git" else common
    return any((above / ".git").exists() or (above / "HEAD").is_file() for above in inside.parents)


def overrides(git_dir: Path, environment: Mapping[str, str]) -> tuple[str, ...]:
    """The ``-c`` arguments with which git may read and write what a foreign git directory describes. Blocks."""
    found: dict[str, str] = {}
    for file in dict.fromkeys((git_dir / "config", git_dir / "config.worktree", common_of(git_dir) / "config")):
        for key in _keys(("--file", str(file), "--includes"), environment):
            for pattern, value in _RUNNING.items():
                if pattern.fullmatch(key[: key.find(".")].lower() + key[key.find(".") :]):
                    found[key] = value
    if not found:
        return ()
    own = {**_values("--system", environment), **_values("--global", environment)}
    return tuple(word for key, value in found.items() for word in ("-c", f"{key}={own.get(key, value)}"))


def _keys(where: tuple[str, ...], environment: Mapping[str, str]) -> list[str]:
    return [record.partition("\n")[0] for record in _list(where, environment)]


def _values(where: str, environment: Mapping[str, str]) -> dict[str, str]:
    return {
        key: value for key, _, value in (record.partition("\n") for record in _list((where, "--includes"), environment))
    }


def _list(where: tuple[str, ...], environment: Mapping[str, str]) -> list[str]:
    argv = ["git", "config", *where, "--null", "--list"]
    done = subprocess.run(argv, check=False, capture_output=True, cwd="/", env=dict(environment))
    return done.stdout.decode(errors="surrogateescape").split("\0")[:-1]
