"""Git directories inside a worktree, which an agent may have created: no program in their configuration may run.

A registered repository may have filters, such as those of git-crypt and `git lfs install --local`. An agent can write to a nested
repository, a submodule's git directory in a linked worktree, and the target of a replaced ``.git`` file. There git runs with the
person's drivers and helpers instead of those in the configuration, and without any transport.
"""

import re
import subprocess
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

from rametd.git.locks import DIRECTORY

# Keys that make git run a command, with their replacements if the person has set none.
_RUNNING: Final = {
    re.compile(r"filter\..*\.(clean|smudge|process)", re.DOTALL): "",
    re.compile(r"filter\..*\.required", re.DOTALL): "false",
    re.compile(r"core\.(sshcommand|gitproxy|askpass|alternaterefscommand)|credential\.(.*\.)?helper", re.DOTALL): "",
    re.compile(r"remote\..*\.(promisor)|(commit|tag)\.gpgsign", re.DOTALL): "false",
    re.compile(r"gpg\.(.*\.)?program", re.DOTALL): "false",
}
ENVIRONMENT: Final = {"GIT_ALLOW_PROTOCOL": "none"}
"""No transport: otherwise a command from the configuration would fetch a partial clone's missing objects."""


def common_of(git_dir: Path) -> Path:
    """Return the repository of a git directory; that of a linked worktree, shelved or not, counts only if it is inside it."""
    try:
        pointer = (git_dir / "commondir").read_text().rstrip("\n")
    except (OSError, ValueError):
        return git_dir.resolve()
    common = (git_dir / pointer).resolve()
    return common if git_dir.resolve().parent in {common / "worktrees", common / DIRECTORY} else git_dir.resolve()


def is_foreign(git_dir: Path, trusted: Collection[Path]) -> bool:
    """Return whether a git directory is inside another repository's tree or git directory, and unregistered. Blocks."""
    common = common_of(git_dir)
    if common in trusted:
        return False
    inside = common.parent if common.name == ".git" else common
    return any((above / ".git").exists() or (above / "HEAD").is_file() for above in inside.parents)


def overrides(git_dir: Path, environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the ``-c`` arguments with which git may work on a foreign git directory. Blocks."""
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
