"""File system access of shell words: expansion of globs and braces, and files below a directory."""

import glob
import os
import re
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from pathspec import GitIgnoreSpec

from rametd.rules.files import Pattern, Place

_MOST_WORDS = 64  # from one brace expansion
_MOST_FILES = 2000  # matches of one glob
_MOST_ENTRIES = 20_000  # entries read below one directory
_WILD = re.compile(r"[*?\[]")
_RANGE = re.compile(r"(-?\d{1,4}|[A-Za-z])\.\.(-?\d{1,4}|[A-Za-z])(?:\.\.-?\d{1,3})?")


def braces(text: str) -> list[str]:
    """Brace expansion of a word, to at most some dozens of words; further groups stay
    unexpanded."""
    found, todo = list[str](), [text]
    while todo:
        word = todo.pop()
        group = _group(word) if len(found) + len(todo) < _MOST_WORDS else None
        if group is None:
            found.append(word)
        else:
            start, end, parts = group
            todo += [word[:start] + part + word[end:] for part in reversed(parts)]
    return found


def _group(text: str) -> tuple[int, int, list[str]] | None:
    """(start, end, parts) of the first group of braces that expands; None if there is none."""
    for start in (i for i, char in enumerate(text) if char == "{"):
        depth, parts, since = 0, list[str](), start + 1
        for i in range(start, len(text)):
            char = text[i]
            depth += (char == "{") - (char == "}")
            if (char == "," and depth == 1) or not depth:
                parts.append(text[since:i])
                since = i + 1
            if not depth:
                if len(parts) == 1:
                    parts = _ranged(parts[0])
                if parts:
                    return start, i + 1, parts
                break
    return None


def _ranged(text: str) -> list[str]:
    match = _RANGE.fullmatch(text)
    if match is None:
        return []
    first, last = match[1], match[2]
    if first.lstrip("-").isdigit() and last.lstrip("-").isdigit():
        low, high = sorted((int(first), int(last)))
        return [str(number) for number in range(low, min(high, low + _MOST_WORDS) + 1)]
    low, high = sorted((ord(first[0]), ord(last[0])))
    return [chr(code) for code in range(low, high + 1)]


def _matching(pattern: str) -> Iterator[str]:
    return glob.iglob(pattern.replace("[^", "[!"))  # noqa: PTH207 - as in a shell, without names that begin with a dot


class Tree:
    """The file system for one call, from each possible working directory. Results are cached."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._beneath: dict[str, tuple[list[Path], bool]] = {}

    def expand(self, text: str) -> tuple[set[str], bool]:
        """Paths that a word may expand to, and whether the set is complete."""
        found, complete = set[str](), True
        for word in braces(text):
            if not _WILD.search(word) and "{" not in word:
                found.add(word)
                continue
            found.add(word)
            if "**" in word or sum(bool(_WILD.search(part)) for part in word.split("/")) > 2:
                complete = False
            for reading in self._place.readings(word):
                # The name may not exist yet: expand only the directories then.
                folder, _, name = str(reading).rpartition("/")
                for pattern, rest in ((str(reading), ""), (folder, "" if _WILD.search(name) else f"/{name}")):
                    matches = list(islice(_matching(pattern), _MOST_FILES))
                    complete = complete and len(matches) < _MOST_FILES
                    if pattern != folder or rest:
                        found.update(match + rest for match in matches)
        return found, complete

    def holds(self, directory: str, patterns: Iterable[Pattern], only: GitIgnoreSpec | None = None) -> Pattern | None:
        """The first pattern that covers a file below a directory, or may because there are too many
        files.

        ``only``: consider just the files that it matches.
        """
        for reading in self._place.readings(directory):
            top = self._place.resolve(reading)
            near = [pattern for pattern in patterns if pattern.within(str(top), self._place)]
            if not near or not top.is_dir():
                continue
            paths, complete = self._look(str(top))
            if only is not None:
                paths = [path for path in paths if path.is_relative_to(top) and only.match_file(path.relative_to(top))]
            for pattern in near:
                covers = pattern.matcher(self._place, tree=False)
                if not complete or any(covers(path) for path in paths):
                    return pattern
        return None

    def _look(self, top: str) -> tuple[list[Path], bool]:
        """Paths below a directory and the targets of its links, nearest first, without `.git`; and
        whether the list is complete."""
        if top not in self._beneath:
            paths, todo = list[Path](), deque([top])
            while todo and len(paths) < _MOST_ENTRIES:
                try:
                    with os.scandir(todo.popleft()) as entries:
                        for entry in entries:
                            if entry.name != ".git":
                                paths.append(Path(entry.path))
                                if entry.is_symlink():
                                    paths.append(self._place.resolve(Path(entry.path)))
                                if entry.is_dir(follow_symlinks=False):
                                    todo.append(entry.path)
                except OSError:
                    continue  # removed or unreadable: the command cannot read it either
            self._beneath[top] = paths, not todo
        return self._beneath[top]
