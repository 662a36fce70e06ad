"""How git stores a file, by its attributes: asked of git itself, since libgit2 reads quoted patterns and macros otherwise.

A process for each look would be most of what a look costs. So nobody is asked where there are no attributes at all, and of each path once until one of
the files that they are made of changes.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rametd.git.context import GitContext
from rametd.git.tracking.walking import is_below

_CONVERTED: Final = ("filter", "ident", "working-tree-encoding")
_LINE_ENDS: Final = ("text", "crlf", "eol")
_ASKED: Final = (*_CONVERTED, *_LINE_ENDS)
_NOTHING: Final = "unspecified"


@dataclass(frozen=True, slots=True)
class Conversion:
    """``filtered``: only git can store it. ``line_ends``: whether they may be converted; None where the configuration decides."""

    filtered: bool = False
    line_ends: bool | None = None


AS_IS: Final = Conversion()


class Attributes:
    """Of one worktree. ``exist``: there may be some."""

    def __init__(self, git: GitContext, worktree: Path, git_dir: Path) -> None:
        self.exist = True
        self._git = git
        self._worktree = worktree
        self._there = (f"--git-dir={git_dir}", f"--work-tree={worktree}")
        self._known: dict[str, Conversion] = {}

    def forget(self, *, exist: bool) -> None:
        """They may have changed."""
        self.exist = exist
        self._known.clear()

    def forget_below(self, directories: set[str]) -> None:
        """Other directories are there now, without what the former had."""
        self._known = {path: known for path, known in self._known.items() if not is_below(path, directories)}

    async def of(self, paths: Iterable[str]) -> Mapping[str, Conversion]:
        """Those of these paths that are not stored `AS_IS` are in it. Raises GitFailedError."""
        if not self.exist:
            return {}
        if asked := sorted(path for path in paths if path not in self._known):
            wanted = b"".join(os.fsencode(path) + b"\0" for path in asked)
            command = ("check-attr", "-z", "--stdin", *_ASKED)
            output = await self._git.process.read(self._worktree, *self._there, *command, stdin=wanted)
            values = os.fsdecode(output).split("\0")[2::3]
            for number, path in enumerate(asked):
                own = values[number * len(_ASKED) : (number + 1) * len(_ASKED)]
                self._known[path] = _conversion(dict(zip(_ASKED, own, strict=True)))
        return self._known


def _conversion(values: Mapping[str, str]) -> Conversion:
    """See gitattributes(5). `crlf` is the older name of `text`, and counts where that says nothing."""
    filtered = any(values[name] != _NOTHING for name in _CONVERTED)
    text = values["text"] if values["text"] in {"set", "unset", "auto", "input"} else values["crlf"]
    if text == "unset":
        return Conversion(filtered, line_ends=False)
    return Conversion(filtered, line_ends=True if any(values[name] != _NOTHING for name in _LINE_ENDS) else None)
