"""Git's rules for a worktree: ignored paths, tracked paths that rules ignore, and unusual settings.

Git itself gives the answers. They are valid until one of the files that they depend on changes:
`Rules.stamps`, `Rules.index`, or a file in the tree (`is_rule`), which file events report.
"""

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from rametd.domain.errors import GitFailedError
from rametd.git.context import GitContext
from rametd.git.process import at
from rametd.git.repository import common_dir
from rametd.git.tracking.walking import is_below, is_file

_UNUSUAL: Final = re.compile(rb"(?:^|\0)(?:([a-zSM]) |. (160000) )")
"""In `ls-files -v --stage -z`: assume-unchanged (lower case), skip-worktree and unmerged entries,
and submodules."""
_ODD: Final = re.compile(r"attr\.tree$|filter\.(?:set|unset|unspecified)\.")
"""Attributes from another tree, and filters whose names look like answers of `git check-attr`."""
_ATTRIBUTES: Final = re.compile(rb"\t((?:[^\0]*/)?\.gitattributes)(?=\0)")
_RULES: Final = frozenset({".gitignore", ".gitattributes", ".gitmodules", ".git"})

Stamp = tuple[int, int, int] | None


@dataclass(frozen=True, slots=True)
class Rules:
    """``needs_scan``: why a tree needs a scan here, "" if known paths suffice. ``converts``: the
    configuration converts line ends.

    ``ignored`` has the directories that ignore rules name (not their content), ``tracked_ignored``
    the tracked files that rules ignore, ``attributes`` the .gitattributes files in the index.
    ``attributed``: files outside the tree have attributes too.
    """

    needs_scan: str
    converts: bool
    ignored: frozenset[str]
    tracked_ignored: frozenset[str]
    attributes: frozenset[str]
    attributed: bool
    stamps: Mapping[str, Stamp]
    index: Stamp

    def same_as(self, other: "Rules") -> bool:
        """Return whether the rules are equal, apart from ignored directories and the stamp of the
        index."""
        return replace(self, ignored=other.ignored, index=other.index) == other

    def freed(self, later: "Rules") -> frozenset[str]:
        """Return the outermost directories that are no longer ignored."""
        return frozenset(path for path in self.ignored - later.ignored if not is_below(path, later.ignored))

    def changed(self, git_dir: Path) -> tuple[bool, bool]:
        """Return whether configuration or exclude files have changed, and whether the index has."""
        return any(stamp(path) != before for path, before in self.stamps.items()), stamp(
            git_dir / "index"
        ) != self.index


@dataclass(frozen=True, slots=True)
class IndexFacts:
    """The part of `Rules` that comes from the index."""

    unusual: str
    tracked_ignored: frozenset[str]
    attributes: frozenset[str]
    index: Stamp


def is_rule(path: str) -> bool:
    """Return whether a change of this path may change ignore rules, conversions, or the borders of
    nested repositories."""
    return path != ".git" and path.rpartition("/")[2] in _RULES


def stamp(path: str | Path) -> Stamp:
    """Return a value that differs after each change of a file; None if it is missing."""
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


async def read_rules(git: GitContext, worktree: Path, git_dir: Path) -> Rules:
    """Read the rules. They are at least as new as the stamps."""
    there = at(git_dir, worktree)
    # Read the configuration twice, and use the second result: the files that the first one names
    # are stamped in between.
    first = await _configuration(git, worktree, there)
    files = _files(first, git.process.environment, worktree, git_dir)
    stamps = await git.compute(lambda: {file: stamp(file) for file in files})
    values = await _configuration(git, worktree, there)
    index = await index_facts(git, worktree, git_dir)
    ignored = await ignored_directories(git, worktree, git_dir)
    return Rules(
        needs_scan=index.unusual or _unusual(values),
        converts=_value(values, "core.autocrlf", "false") not in {"false", ""},
        ignored=ignored,
        tracked_ignored=index.tracked_ignored,
        attributes=index.attributes,
        attributed=any(seen is not None and files[file] for file, seen in stamps.items()),
        stamps=stamps,
        index=index.index,
    )


async def index_facts(git: GitContext, worktree: Path, git_dir: Path) -> IndexFacts:
    """Read the user's present index."""
    there = at(git_dir, worktree)
    before = await git.compute(stamp, git_dir / "index")
    entries = await git.process.read(worktree, *there, "ls-files", "-v", "--stage", "-z")
    tracked_ignored = await git.process.read(
        worktree, *there, "ls-files", "--cached", "--ignored", "--exclude-standard", "-z"
    )
    found = _UNUSUAL.search(entries)
    unusual = "" if found is None else "submodules" if found[2] else "entries of the index that git treats specially"
    attributes = frozenset(os.fsdecode(path) for path in _ATTRIBUTES.findall(entries))
    # Git reads such a file from the index if it is missing in the tree, and the index changes while
    # files are added.
    gone = await git.compute(lambda: [path for path in attributes if not is_file(Path(f"{worktree}/{path}"))])
    if gone:
        unusual = unusual or f"{gone[0]} is in the index only"
    return IndexFacts(unusual, frozenset(_split(tracked_ignored)), attributes, before)


async def ignored_directories(
    git: GitContext, worktree: Path, git_dir: Path, below: Iterable[str] = ()
) -> frozenset[str]:
    """Return directories that ignore rules name, at or below some paths (by default everywhere)."""
    there = at(git_dir, worktree)
    listing = ("ls-files", "--others", "--ignored", "--exclude-standard", "--directory", "-z", "--", *below)
    # Use an empty index: git does not list an ignored directory that has tracked files.
    nothing = {"GIT_INDEX_FILE": str(git_dir / "ramet-no-index")}
    output = await git.process.read(worktree, *there, "--literal-pathspecs", *listing, environment=nothing)
    # Git also lists directories that have only ignored files, in which another file may be created.
    candidates = [path.removesuffix("/") for path in _split(output) if path.endswith("/")]
    return await ignored(git, worktree, git_dir, candidates)


async def ignored(git: GitContext, worktree: Path, git_dir: Path, paths: Iterable[str]) -> frozenset[str]:
    """Return the paths that rules ignore, tracked or not. Raise GitFailedError, also for a path
    beyond a symbolic link."""
    wanted = b"".join(os.fsencode(path) + b"\0" for path in paths)
    if not wanted:
        return frozenset()
    arguments = (*at(git_dir, worktree), "check-ignore", "--no-index", "--stdin", "-z")
    done = await git.process.run(worktree, *arguments, stdin=wanted, environment={"GIT_OPTIONAL_LOCKS": "0"})
    if done.returncode > 1:
        raise GitFailedError(f"git check-ignore: {done.words}", command="check-ignore")
    return frozenset(_split(done.stdout))


def _split(output: bytes) -> list[str]:
    return os.fsdecode(output).split("\0")[:-1]


async def _configuration(git: GitContext, worktree: Path, there: tuple[str, str]) -> list[tuple[str, str, str]]:
    """Return (origin, key, value) in git's order."""
    fields = iter(_split(await git.process.read(worktree, *there, "config", "--list", "--show-origin", "-z")))
    return [(origin, *pair.partition("\n")[::2]) for origin, pair in zip(fields, fields, strict=True)]


def _value(values: list[tuple[str, str, str]], key: str, default: str) -> str:
    return next((value.lower() for _, name, value in reversed(values) if name == key), default)


def _unusual(values: list[tuple[str, str, str]]) -> str:
    ordinary = {"core.filemode": "true", "core.symlinks": "true", "core.ignorecase": "false"} | {
        "core.sparsecheckout": "false",
        "core.precomposeunicode": "false",
    }
    shared = _value(values, "core.sharedrepository", "umask")
    if shared not in {"umask", "false", "0"}:
        return "core.sharedRepository gives objects other permissions"
    odd = next((f"{key} is not {usual}" for key, usual in ordinary.items() if _value(values, key, usual) != usual), "")
    if not odd and (key := next((key for _, key, _ in values if _ODD.match(key)), None)) is not None:
        odd = f"{key} is configured"
    return odd


def _files(
    values: list[tuple[str, str, str]], environment: Mapping[str, str], worktree: Path, git_dir: Path
) -> dict[str, bool]:
    """Return the files outside the tree that rules depend on, including missing ones; True for
    files of attributes."""
    common, home = common_dir(git_dir), environment.get("HOME", "/")
    settings = Path(environment.get("XDG_CONFIG_HOME") or f"{home}/.config") / "git"

    def real(value: str, beside: Path) -> str:
        return value.replace("~", home, 1) if value.startswith("~/") else str(beside / value)

    plain = {str(common / name) for name in ("config", "info/exclude")} | {"/etc/gitconfig", f"{home}/.gitconfig"}
    plain |= {str(git_dir / name) for name in ("config.worktree", "info/sparse-checkout")}
    plain |= {str(settings / name) for name in ("config", "ignore")}
    giving = {str(common / "info/attributes"), str(settings / "attributes"), "/etc/gitattributes"}
    for origin, key, value in values:
        file = common / origin.removeprefix("file:") if origin.startswith("file:") else worktree
        if origin.startswith("file:"):
            plain.add(str(file))
        if file.name == "gitconfig":  # git may be installed with a directory of its own for both
            giving.add(str(file.with_name("gitattributes")))
        if key == "core.excludesfile":
            plain.add(real(value, worktree))
        elif key == "core.attributesfile":
            giving.add(real(value, worktree))
        elif key == "include.path" or key.startswith("includeif."):
            plain.add(real(value, file.parent))
        if key.startswith("includeif.onbranch:"):
            plain.add(str(git_dir / "HEAD"))
    return dict.fromkeys(plain, False) | dict.fromkeys(giving, True)
