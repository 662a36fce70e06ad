"""Patterns for file tools: gitignore patterns with Claude's anchors, matched against resolved
paths.

======================  =============================================
``src/**``, ``*.env``   as in a .gitignore at the worktree's top
``/src/**``             the same, anchored there
``//etc/**``            from the root of the file system
``~/notes/**``          from the home directory
======================  =============================================

To allow, only the resolved path counts, and symlinks in the pattern are not followed: a link that
an agent creates never widens a rule. To deny or ask, the path as written counts too, and so does
the resolved fixed part of the pattern.
"""

import posixpath
import re
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from pathlib import Path
from typing import Self

from pathspec import GitIgnoreSpec

from rametd.domain.errors import BadRuleError

# Writes to these files change the commands that git, Claude or Ramet runs, so a rule covers them
# only by name.
PROTECTED = frozenset({".git", ".claude", ".mcp.json", ".ramet.toml", ".worktreeinclude"})
# A bracket expression (or escaped character) that all implementations interpret in the same way;
# others are rejected.
_CLASS = re.compile(r"\\.|\[[!^]?\]?(?:(?!--)[^\[\]\\&~|])*\]")
# Working directory and root of a process in /proc: other names for the paths below them.
_OF_A_PROCESS = re.compile(r"/+proc/+[^/]+(?:/+task/+[^/]+)?/+(cwd|root)(?=/|$)")
_PROBES = ("qzv7/K/w_x.t9k", "jx/m-3", "zzy.q0")


class Anchor(Enum):
    WORKTREE = "worktree"
    ROOT = "root"
    HOME = "home"


@dataclass(frozen=True, slots=True)
class Place:
    """Base directories of paths, and their resolution. ``resolve`` follows symlinks of existing
    parts, and never raises.

    Patterns are relative to ``worktree``. Paths in a call are relative to one of ``bases``, the
    possible working directories.
    """

    worktree: Path
    home: Path
    resolve: Callable[[Path], Path]
    ignore_case: bool = False
    bases: tuple[Path, ...] = ()

    def root(self, anchor: Anchor) -> Path:
        return {Anchor.WORKTREE: self.worktree, Anchor.HOME: self.home, Anchor.ROOT: Path("/")}[anchor]

    def readings(self, path: str) -> tuple[Path, ...]:
        """Absolute paths that ``path`` may mean: from each base, and from home if it begins with
        ``~``."""
        # A path with NUL or lone surrogates cannot exist, and cannot be resolved.
        path = path.replace("\0", "").encode(errors="replace").decode()
        bases = self.bases or (self.worktree,)
        if match := _OF_A_PROCESS.match(path):
            rest = path[match.end() :].lstrip("/")
            return (*((base / rest for base in bases) if match[1] == "cwd" else (Path("/", rest),)), Path(path))
        plain = tuple(dict.fromkeys(base / path for base in bases))
        if path == "~" or path.startswith("~/"):
            return *plain, self.home / path[2:]
        if path.startswith("~+/"):  # the working directory, in shells
            return *plain, *(base / path[3:] for base in bases)
        return plain

    def meanings(self, path: str) -> Iterator[Path]:
        """Absolute paths that ``path`` may mean, as written and resolved."""
        for reading in self.readings(path):
            yield Path(posixpath.normpath(reading))
            yield self.resolve(reading)

    def protects(self, path: Path) -> bool:
        """Whether an absolute path is of a file that decides which commands run, or of its
        directory."""
        top = self.resolve(self.worktree)
        inside = path.relative_to(top).parts if path.is_relative_to(top) else path.parts
        return any(part.casefold() in PROTECTED for part in inside)

    def fold(self, text: str) -> str:
        return unicodedata.normalize("NFC", text).casefold() if self.ignore_case else text


@dataclass(frozen=True, slots=True)
class Pattern:
    anchor: Anchor
    glob: str

    @classmethod
    def parse(cls, text: str, specifier: str, *, allows: bool) -> Self:
        """Parse the specifier of the rule ``text``. Raises BadRuleError."""

        def bad(why: str, hint: str) -> BadRuleError:
            return BadRuleError(f"rule {text!r}: {why}", hint=hint, rule=text)

        anchor, glob = Anchor.WORKTREE, specifier
        if specifier.startswith("//"):
            anchor, glob = Anchor.ROOT, specifier[1:]
        elif specifier == "~" or specifier.startswith("~/"):
            anchor, glob = Anchor.HOME, specifier[1:] or "/"
        elif specifier.startswith("./"):
            glob = specifier[1:]
        if ".." in specifier.split("/"):
            raise bad(
                "a pattern must not climb with `..`",
                "name the place from the root, as in Edit(//srv/data/**), or from home, as ~/x/**",
            )
        if glob.startswith(("!", "#")):
            raise bad(
                f"a pattern that begins with {glob[0]} matches nothing", f"write \\{glob} for a file of that name"
            )
        if "//" in glob or "/./" in glob:
            raise bad("the path has an empty part", "write one / between names")
        if "[" in _CLASS.sub("", glob):
            raise bad("its brackets hold no plain characters or ranges", "write \\[ for a bracket in a name")
        if not glob.strip("/"):
            glob = "/**"
        try:
            _spec(glob)
        except (ValueError, re.error) as error:
            raise bad(f"no such pattern: {error}", "write it as in a .gitignore") from error
        if allows and (not glob.strip("*?./") or all(_spec(glob).match_file(probe) for probe in _PROBES)):
            raise bad("it would allow everything there", "name a directory or a kind of file: Edit(src/**), Edit(*.md)")
        return cls(anchor, glob)

    def allows(self, path: str, place: Place, *, tree: bool, edits: bool) -> bool:
        """Whether it covers a path (with ``tree``, also all paths below) in every reading, with
        links resolved."""
        if not all(char.isprintable() for char in path):
            return False
        root = place.resolve(place.root(self.anchor))
        return all(
            self._matches(place, root, (real := place.resolve(reading)), tree=tree)
            and not (edits and self._protects(real, root))
            for reading in place.readings(path)
        )

    def touches(self, path: str, place: Place, *, tree: bool) -> bool:
        """Whether it covers a path as written or resolved."""
        return any(map(self.matcher(place, tree=tree), place.meanings(path)))

    def matcher(self, place: Place, *, tree: bool) -> Callable[[Path], bool]:
        """Return a test for absolute paths, which tries all spellings of the pattern's own
        directory."""
        spellings = list(self._spellings(place, place.root(self.anchor)))
        return lambda path: any(spelled._matches(place, root, path, tree=tree) for spelled, root in spellings)

    def within(self, directory: str, place: Place) -> bool:
        """Whether it may cover files below a directory, which a search there would show."""
        fixed = self._fixed()
        target = place.resolve(place.root(self.anchor) / fixed)
        tops = [place.resolve(reading) for reading in place.readings(directory)]
        return any(
            _relative(place, top, target) is not None or _relative(place, target, top) is not None for top in tops
        )

    def _protects(self, real: Path, root: Path) -> bool:
        inside = real.relative_to(root).parts if real.is_relative_to(root) else real.parts
        named = {part.casefold() for part in self.glob.split("/")}
        return any(part.casefold() in PROTECTED - named for part in inside)

    def _fixed(self) -> str:
        """Leading directories without wildcards; "" for a pattern that matches at any depth."""
        if "/" not in self.glob.rstrip("/"):
            return ""
        parts = self.glob.strip("/").split("/")
        plain = next((i for i, part in enumerate(parts) if re.search(r"[*?\[\\]", part)), len(parts))
        return "/".join(parts[:plain])

    def _spellings(self, place: Place, root: Path) -> Iterator[tuple["Pattern", Path]]:
        yield self, root
        yield self, place.resolve(root)
        fixed = self._fixed()
        if not fixed and not re.search(r"[*?\[\\/]", self.glob):
            fixed = self.glob  # a name at any depth also matches at the top, where it may be a link
        if fixed:
            rest = self.glob.strip("/").removeprefix(fixed) + ("/" if self.glob.endswith("/") else "")
            target = place.resolve(root / fixed)
            if not rest.strip("/"):  # the pattern names one file or directory
                yield Pattern(self.anchor, "/" + _escaped(target.name)), target.parent
            else:
                yield Pattern(self.anchor, rest), target

    def _matches(self, place: Place, root: Path, path: Path, *, tree: bool) -> bool:
        relative = _relative(place, root, path)
        if relative is None:
            return False
        glob = place.fold(self.glob)
        if relative and _spec(glob).match_file(relative):
            return True
        if not tree or not glob.endswith("/**"):
            return False
        above = glob.removesuffix("/**").removeprefix("/")
        return not above or (bool(relative) and _spec("/" + above).match_file(relative))


def _relative(place: Place, root: Path, path: Path) -> str | None:
    """``path`` relative to ``root`` ("" for the root itself); None outside it."""
    top, full = place.fold(str(root)).rstrip("/"), place.fold(str(path))
    if full == top:
        return ""
    return full[len(top) + 1 :] if full.startswith(top + "/") else None


def _escaped(name: str) -> str:
    return re.sub(r"([\\*?\[\] !#])", r"\\\1", name)


def named(path: str, anchor: str) -> str:
    """The pattern that matches exactly this relative path."""
    return anchor + "/".join(_escaped(part) for part in path.split("/"))


@lru_cache(maxsize=4096)
def _spec(glob: str) -> GitIgnoreSpec:
    return GitIgnoreSpec.from_lines([glob])
