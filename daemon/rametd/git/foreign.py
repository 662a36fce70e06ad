"""Git directories inside a worktree, which an agent may have created: no program in their
configuration may run.

A registered repository may have filters, such as those of git-crypt and `git lfs install --local`.
An agent can write to a nested repository, a submodule's git directory in a linked worktree, the
target of a replaced ``.git`` file, and any directory that a ``.gitmodules`` or a submodule's remote
names. In these, git runs without any transport, and with the person's drivers and helpers instead
of the configured ones. Some commands make git enter submodules by itself: the same drivers apply
there.

The configuration of a registered repository may include a file of its checkout (``include.path =
../.gitconfig``), which a landing or a pull changes. Until the person has trusted the content of
that file, its settings are treated in the same way.
"""

import os
import re
import stat
import subprocess
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from rametd.domain.trust import item_digest, shown
from rametd.git.registrations import common_of, existing_git_dir
from rametd.platform.files import open_regular, read_regular

# Keys that make git run a command, with the replacements for keys that the person has not set.
_RUNNING: Final = {
    re.compile(r"filter\..*\.(clean|smudge|process)", re.DOTALL): "",
    re.compile(r"filter\..*\.required", re.DOTALL): "false",
    re.compile(r"core\.(sshcommand|gitproxy|askpass|alternaterefscommand)|credential\.(.*\.)?helper", re.DOTALL): "",
    re.compile(r"init\.templatedir"): "",
    re.compile(r"remote\..*\.promisor|(commit|tag)\.gpgsign", re.DOTALL): "false",
    re.compile(r"remote\..*\.uploadpack", re.DOTALL): "git-upload-pack",
    re.compile(r"remote\..*\.receivepack", re.DOTALL): "git-receive-pack",
    re.compile(r"gpg\.(.*\.)?program", re.DOTALL): "false",
    # If there is no signing key, signing with ssh runs this command.
    re.compile(r"gpg\.ssh\.defaultkeycommand"): "",
    re.compile(r"gpg\.format"): "openpgp",
    re.compile(r"merge\..*\.driver", re.DOTALL): "git merge-file %A %O %B",
    # The person's own `git lfs` filters run these.
    re.compile(r"lfs\.customtransfer\..*\.path|lfs\.extension\..*\.(clean|smudge)", re.DOTALL): "",
}
_INCLUDE: Final = re.compile(r"include(if\..*)?\.path", re.DOTALL)
_MAY_RUN: Final = re.compile(
    rb"filter|command|proxy|askpass|credential|templatedir|promisor|partialclone|pack|gpg|driver|customtransfer|extension\.|include",
    re.IGNORECASE,
)
"""Matches every configuration file that has such a key, or includes another file."""
_NO_TRANSPORT: Final = {"GIT_ALLOW_PROTOCOL": "none"}
"""Else git would run a command from the configuration to fetch missing objects of a partial
clone."""
CONNECTING: Final = frozenset({"clone", "fetch", "lfs", "ls-remote", "push", "submodule"})
"""Commands that talk to a server."""
_ENTERING: Final = frozenset({"add", "commit", "diff", "diff-files", "status"})
"""Commands that make git run in the submodules of a worktree, to find changes there."""
_LINK: Final = (0o160000).to_bytes(4, "big")
"""The mode of an entry of the index that points at a commit (gitformat-index(5))."""
_PATIENCE_S: Final = 60.0
"""Time limit: a configuration may include a pipe, at which git would wait for ever."""
_LARGEST: Final = 16 << 20
"""Maximum bytes of a configuration file."""
_ELSEWHERE: Final = b"link"
"""The extension of an index that has entries in a shared one."""


def has_no_links(index: Path) -> bool:
    """Return whether an index surely points at no repository. Scanning its bytes is a hundred times
    as fast as listing its entries. The answer is no also if the bytes occur by chance, or if some
    entries are in another file."""
    try:
        file = open_regular(index)
        if file is None:
            return False
        with file:
            end = b""
            while piece := file.read(1 << 20):  # an index has no limit: it is a tenth of a gigabyte for 10⁶ files
                part = end + piece
                if _LINK in part or _ELSEWHERE in part:
                    return False
                end = part[-3:]
    except FileNotFoundError:  # nothing was ever added
        return True
    except OSError:
        return False
    return True


def restrictions(
    where: Path,
    verb: str,
    arguments: Sequence[str],
    environment: Mapping[str, str],
    trusted: Mapping[Path, Collection[str]],
) -> Mapping[str, str]:
    """Return variables for a git command that disable settings that an agent may have written in
    the directory. Blocks.

    ``trusted``: digests of trusted items by registered repository. The result is empty if no
    repository is registered, or if the command uses only registered ones. Raise OSError or
    `subprocess.SubprocessError` if a configuration cannot be read, or has a setting that cannot be
    disabled.
    """
    git_dir = _option(arguments, "--git-dir") or _found_from(where)
    if git_dir is None or not trusted:
        return {}
    common = common_of(git_dir)
    foreign = common not in trusted
    index = Path(environment.get("GIT_INDEX_FILE") or git_dir / "index")
    top = _option(arguments, "--work-tree") or where
    entered = list(_entered(git_dir, _real(top), index, environment, set())) if verb in _ENTERING else []
    entered += _existing_modules(git_dir, _real(top), environment) if verb == "submodule" else []
    settings = [key for each in ([git_dir] if foreign else []) + entered for key in _running(each, environment)]
    included = [] if foreign else _included(git_dir, common, trusted[common], environment)
    if included and verb in CONNECTING:
        raise OSError(
            f"the configuration includes {included[0].name}, which changed since you trusted it; see `rametctl repo trust`"
        )
    if not settings and not included:
        return _NO_TRANSPORT if foreign else {}
    own: dict[str, str] = {}
    for scope, file, key, value in _configured(git_dir, environment):
        if file in included:
            settings += [key] if _runs(key) else []
            included += [_located(_target(file, value, environment))] if _INCLUDE.fullmatch(key) else []
        elif not foreign or scope in {"system", "global"}:
            own[key] = value
    # Git uses the first value of these keys, which a variable cannot replace. They do not apply to
    # a path.
    named = verb in CONNECTING and not any(word.startswith("/") for word in arguments)
    if named and (packs := [key for key in settings if key.endswith((".uploadpack", ".receivepack"))]):
        raise OSError(f"a repository's own configuration sets {packs[0]}")
    values = {key: own.get(key, value) for key in settings for value in [_replacement(key)] if value is not None}
    counted = {"GIT_CONFIG_COUNT": str(len(values))} if values else {}
    for number, (key, value) in enumerate(values.items()):  # not by `-c`: the name of a driver may contain a `=`
        counted |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    # A registered partial clone would fetch a missing object from the address that a changed
    # `url.*.insteadOf` names.
    closed = foreign or bool(included) or any(key.endswith((".promisor", ".partialclone")) for key in settings)
    return {**(_NO_TRANSPORT if closed else {}), **counted}


def _included(git_dir: Path, common: Path, digests: Collection[str], environment: Mapping[str, str]) -> list[Path]:
    """Return the files of the checkout that the configuration includes and whose content the person
    has not trusted."""
    return [
        file
        for name, file in included_files(git_dir, common, environment).items()
        if item_digest(name, shown(_content(file))) not in digests
    ]


def included_files(git_dir: Path, common: Path, environment: Mapping[str, str]) -> dict[str, Path]:
    """Return the files of the checkout that a repository's own configuration includes,
    conditionally too, by their names there. A directory in the checkout may be a link to another
    place. Blocks.
    """
    if common.name != ".git" or not any(
        b"include" in _content(file).lower() for file in (common / "config", git_dir / "config.worktree")
    ):
        return {}
    top, found = common.parent, dict[str, Path]()
    for scope, origin, key, value in _configured(git_dir, environment):
        if scope in {"local", "worktree"} and _INCLUDE.fullmatch(key):
            path = _target(origin, value, environment)
            file = _located(path)
            for name in (Path(os.path.normpath(path)), file):
                if name.is_relative_to(top) and not name.is_relative_to(common) and os.path.lexists(file):
                    found.setdefault(str(name.relative_to(top)), file)
                    break
    return found


def _target(file: Path, value: str, environment: Mapping[str, str]) -> Path:
    """Return the file that ``include.path = value`` names."""
    home = Path(environment.get("HOME", "/"))
    return home / value[2:] if value.startswith("~/") else file.parent / value


def _option(arguments: Sequence[str], name: str) -> Path | None:
    return next((Path(word.partition("=")[2]) for word in arguments if word.startswith(f"{name}=")), None)


def _found_from(where: Path) -> Path | None:
    """Return the git directory that git finds from a directory."""
    where = _real(where)
    for each in (where, *where.parents):
        if (found := _git_dir_in(each)) is not None:
            return found
        if (each / "HEAD").is_file() and ((each / "objects").is_dir() or (each / "commondir").is_file()):
            return each
    return None


def _git_dir_in(directory: Path) -> Path | None:
    """As `existing_git_dir`, but do not resolve a symbolic link ``.git``: git compares conditional
    includes with that name too."""
    dot_git = directory / ".git"
    return dot_git if dot_git.is_dir() else existing_git_dir(directory)


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))  # `Path.resolve` raises for a loop of links


def _existing_modules(git_dir: Path, top: Path, environment: Mapping[str, str]) -> Iterator[Path]:
    """Return the existing git directories of declared submodules, which `git submodule update` uses
    instead of a new clone."""
    if not (top / ".gitmodules").is_file():
        return
    names = ("config", "--null", "--name-only", f"--file={top / '.gitmodules'}", "--list")
    for key in dict.fromkeys(_output(names, environment)):
        name = key.removeprefix("submodule.").rpartition(".")[0]
        if name and (directory := git_dir / "modules" / name).is_dir():
            yield directory


def _entered(git_dir: Path, top: Path, index: Path, environment: Mapping[str, str], seen: set[Path]) -> Iterator[Path]:
    """Return the git directories of submodules, at any depth. Like git, follow no symbolic link to
    one."""
    if not _is_file(index) or has_no_links(index):
        return
    words = ("-c", "core.fsmonitor=false", f"--git-dir={git_dir}", "ls-files", "--stage", "-z")
    for record in _output(words, {**environment, "GIT_INDEX_FILE": str(index)}):
        fields, _, place = record.partition("\t")
        directory = Path(os.path.normpath(top / place))
        if not fields.startswith("160000 ") or directory in seen or _real(directory) != directory:
            continue
        seen.add(directory)
        inner = _git_dir_in(directory)
        if inner is not None:
            yield inner
            yield from _entered(inner, directory, inner / "index", environment, seen)


def _running(git_dir: Path, environment: Mapping[str, str]) -> list[str]:
    """Return the keys in a repository's own configuration that make git run commands or fetch
    objects."""
    if not any(_MAY_RUN.search(_content(file)) for file in _files(git_dir)):
        return []
    return [
        key for scope, _, key, _ in _configured(git_dir, environment) if scope in {"local", "worktree"} and _runs(key)
    ]


def _runs(key: str) -> bool:
    return _replacement(key) is not None or key == "extensions.partialclone"


def _replacement(key: str) -> str | None:
    return next((value for pattern, value in _RUNNING.items() if pattern.fullmatch(key)), None)


def _files(git_dir: Path) -> tuple[Path, ...]:
    pointer = _content(git_dir / "commondir").decode(errors="surrogateescape").rstrip("\n")
    return git_dir / "config", git_dir / "config.worktree", git_dir / pointer / "config"


def _is_file(file: Path) -> bool:
    """Return whether a regular file exists. Raise OSError for a pipe, whose writer may give each
    reader other bytes."""
    try:
        mode = file.stat().st_mode
    except OSError:
        return False
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise OSError(f"{file} is not a regular file")
    return stat.S_ISREG(mode)


def _content(file: Path) -> bytes:
    """Return the bytes of a file, none if it is missing. Raise OSError for a pipe, and for a file
    that is too large to be a configuration."""
    if not _is_file(file):
        return b""
    try:
        data = read_regular(file, _LARGEST)
    except OSError:
        return b""
    if data is None:
        raise OSError(f"{file} has more than {_LARGEST:,} bytes")
    return data


def _configured(git_dir: Path, environment: Mapping[str, str]) -> Iterator[tuple[str, Path, str, str]]:
    """Return scope, file, key and value of each setting that git itself reads there, also from
    conditionally included files."""
    words = ("config", "--null", "--show-scope", "--show-origin", "--list")
    fields = _output((f"--git-dir={git_dir}", *words), environment)
    for scope, origin, setting in zip(fields[0::3], fields[1::3], fields[2::3], strict=False):
        key, _, value = setting.partition("\n")
        yield scope, _located(Path(origin.removeprefix("file:"))), key, value


def _located(path: Path) -> Path:
    """Resolve the directory of a path, but not the file itself: git names a file in several
    ways."""
    return _real(path.parent) / path.name


def _output(words: tuple[str, ...], environment: Mapping[str, str]) -> list[str]:
    done = subprocess.run(
        ["git", *words], check=False, capture_output=True, cwd="/", env=dict(environment), timeout=_PATIENCE_S
    )
    return done.stdout.decode(errors="surrogateescape").split("\0")[:-1]
