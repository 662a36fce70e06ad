"""How git stores a file, by its attributes. Git itself answers, because libgit2 reads quoted
patterns and macros differently.

A git process for each tree would cost more than all other work. So git is not called without
attributes, and for each path only once until a file of attributes changes.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rametd.git.context import GitContext
from rametd.git.process import at
from rametd.git.tracking.walking import is_below

_CONVERTED: Final = ("filter", "ident", "working-tree-encoding")
_LINE_ENDS: Final = ("text", "crlf", "eol")
_ASKED: Final = (*_CONVERTED, *_LINE_ENDS)
_NOTHING: Final = "unspecified"


@dataclass(frozen=True, slots=True)
class Conversion:
    """``filtered``: only git can store the file. ``line_ends``: whether git may convert line ends;
    None if the configuration decides."""

    filtered: bool = False
    line_ends: bool | None = None


AS_IS: Final = Conversion()


class Attributes:
    """Attributes of one worktree. ``exist``: whether there may be any."""

    def __init__(self, git: GitContext, worktree: Path, git_dir: Path) -> None:
        self.exist = True
        self._git = git
        self._worktree = worktree
        self._there = at(git_dir, worktree)
        self._known: dict[str, Conversion] = {}

    def forget(self, *, exist: bool) -> None:
        """Forget all answers: attributes may have changed."""
        self.exist = exist
        self._known.clear()

    def forget_below(self, directories: set[str]) -> None:
        """Forget answers about paths in directories that were replaced."""
        self._known = {path: known for path, known in self._known.items() if not is_below(path, directories)}

    async def of(self, paths: Iterable[str]) -> Mapping[str, Conversion]:
        """Return conversions, at least those other than `AS_IS`. Raise GitFailedError."""
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
    """See gitattributes(5). `crlf`, the older name of `text`, counts if `text` is unspecified."""
    filtered = any(values[name] != _NOTHING for name in _CONVERTED)
    text = values["text"] if values["text"] in {"set", "unset", "auto", "input"} else values["crlf"]
    if text == "unset":
        return Conversion(filtered, line_ends=False)
    return Conversion(filtered, line_ends=True if any(values[name] != _NOTHING for name in _LINE_ENDS) else None)
