"""Gitignore patterns as a claim on paths. A path is that of a file, relative to the worktree's top.

The last pattern that matches a file, or a directory that contains it, decides. Each pattern matches
as in git, with one difference: git never reads an ignored directory, so ``!src/api/`` after
``src/`` has no effect there. Here it excludes ``src/api/`` from ``src/``.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby

from rametd.domain.errors import InvalidInputError
from rametd.ownership.glob import Rule, compile_rule, fold_text, regex

EVERYTHING = "/**"
LIMIT = 32 << 10
"""Maximum characters of all patterns of a set. Comparing two sets takes memory proportional to its
square."""


@dataclass(frozen=True)
class Patterns:
    """An ordered set of patterns. An empty set is falsy and owns nothing."""

    texts: tuple[str, ...]  # normalised

    @classmethod
    def parse(cls, patterns: Sequence[str]) -> "Patterns":
        """Parse patterns. Raises `InvalidInputError` with ``data["index"]`` and ``data["pattern"]``
        for an invalid one."""
        texts = []
        for index, pattern in enumerate(patterns):
            try:
                texts.append(normalise(pattern))
            except ValueError as error:
                raise InvalidInputError(
                    f"pattern {index + 1}, {pattern!r}, {error}",
                    hint="write paths as in a .gitignore at the repository's top, such as src/api/ or docs/**/*.md",
                    index=str(index),
                    pattern=pattern,
                ) from None
        if texts and all(text.startswith("!") for text in texts):
            raise InvalidInputError(
                f"pattern 1, {patterns[0]!r}, excludes paths, but no pattern before it includes any",
                hint="put the pattern that takes it in before it, such as `src/`, then `!src/generated/`",
                index="0",
                pattern=patterns[0],
            )
        return cls(tuple(texts))

    def __bool__(self) -> bool:
        return bool(self.texts)

    def meant(self, *, ignore_case: bool) -> tuple[Rule, ...]:
        """Rules for the comparison of sets; see `compile_rule`."""
        return _meant(self.texts, ignore_case)

    def matches(self, path: str, *, ignore_case: bool = False) -> bool:
        """Whether the file at ``path`` is owned."""
        name = path_bytes(path, fold=ignore_case)
        for expression, owned in deciders(self.texts, ignore_case):
            if expression.fullmatch(name):
                return owned
        return False


@lru_cache(maxsize=1024)
def _meant(texts: tuple[str, ...], fold: bool) -> tuple[Rule, ...]:
    return tuple(compile_rule(text, fold=fold, meant=True) for text in texts)


def check_size(patterns: Sequence[str]) -> None:
    """Refuse a set that is too large to be stored. Raises `InvalidInputError`."""
    if (size := sum(map(len, patterns))) > LIMIT:
        raise InvalidInputError(
            f"the patterns have {size:,} characters together (at most {LIMIT:,})",
            hint="name directories instead of single files",
        )


@lru_cache(maxsize=512)
def deciders(texts: tuple[str, ...], fold: bool) -> tuple[tuple["re.Pattern[bytes]", bool], ...]:
    """(expression, owned) pairs; the first match decides. Consecutive patterns of one kind share an
    expression."""
    found = []
    rules = [compile_rule(text, fold=fold) for text in reversed(texts)]
    for negated, run in groupby(rules, key=lambda rule: rule.negated):
        files = b"|".join(regex(rule.tokens) + (b"/.+" if rule.directory else b"(?:/.+)?") for rule in run)
        found.append((re.compile(files, re.DOTALL), not negated))
    return tuple(found)


def path_bytes(path: str, *, fold: bool) -> bytes:
    text = unicodedata.normalize("NFC", path)
    return (fold_text(text) if fold else text).encode(errors="surrogateescape")


def normalise(pattern: str) -> str:
    """Normalise ``./a``, ``a/../b`` and doubled slashes, which git does not match. Raises
    `ValueError` with the reason."""
    if "\0" in pattern:
        raise ValueError("holds a NUL")
    text = unicodedata.normalize("NFC", strip_spaces(pattern))
    if text.startswith("#"):
        raise ValueError("is a comment: write \\# for a name that begins with it")
    negated = text.startswith("!")
    text = text.removeprefix("!")
    if not text:
        raise ValueError("is empty")
    if text.startswith(("//", "~")) or text == "/":
        raise ValueError("is absolute")
    if not {"", ".", ".."} & set(text.removeprefix("/").removesuffix("/").split("/")):
        return "!" * negated + text
    parts: list[str] = []
    for part in text.split("/"):
        if part == ".." and (not parts or re.fullmatch(r"\*\*+", parts[-1])):
            raise ValueError("climbs out of the repository" if not parts else "goes up from `**`, which is anywhere")
        if part == "..":
            parts.pop()
        elif part not in {"", "."}:
            parts.append(part)
    ending = "/" if text.endswith(("/", "/.", "/..")) else ""
    return "!" * negated + ("/" + "/".join(parts) + ending if parts else EVERYTHING)


def strip_spaces(pattern: str) -> str:
    """Remove trailing spaces, except an escaped one."""
    stripped = pattern.rstrip(" ")
    escaped = (len(stripped) - len(stripped.rstrip("\\"))) % 2
    return stripped + " " if escaped and stripped != pattern else stripped


def aliases(path: str, links: Mapping[str, str]) -> Iterator[str]:
    """All names of a path, its own first. ``links`` maps symbolic links to directories to their
    real paths."""
    seen = {path: None}
    queue = [path]
    for name in queue:
        for link, target in links.items():
            for old, new in ((target, link), (link, target)):
                other = new + name[len(old) :]
                # A link to a parent of itself gives endless names: follow each link once.
                if name.startswith(old + "/") and other not in seen and not other.startswith(f"{name}/"):
                    if len(other) > len(path) + sum(map(len, links)):
                        continue
                    seen[other] = None
                    queue.append(other)
    return iter(seen)


def names_of(pattern: str, files: Iterable[str], links: Mapping[str, str], *, ignore_case: bool) -> list[str]:
    """All names of a path, sorted, with the spelling of the repository's files. A pattern with
    wildcards stays unchanged."""
    path = pattern.removeprefix("/")
    if re.search(r"[*?\[\\]", path):
        return [pattern]
    known = {fold_text(above): above for file in files for above in _with_parents(file)} if ignore_case else {}
    path = _spelled(path, known)
    names = [_spelled(name, known) for name in aliases(f"{path}/" if path in links else path, links)]
    there = [name for name in names if fold_text(name) in known]  # a name through a link is spelled as typed
    return sorted(aliases(there[0], links) if there else names)


def _spelled(path: str, known: Mapping[str, str]) -> str:
    """Spell the existing part of a path as the files do. ``known``: existing paths by their folded
    text."""
    parts = path.split("/")
    for end in range(len(parts), 0, -1):
        if (found := known.get(fold_text("/".join(parts[:end])))) is not None:
            return "/".join([found, *parts[end:]])
    return path


def _with_parents(path: str) -> Iterator[str]:
    yield from (path[:at] for at, char in enumerate(path) if char == "/")
    yield path


def owned_by(patterns: Patterns, paths: Iterable[str], links: Mapping[str, str], *, ignore_case: bool) -> set[str]:
    """The files that the patterns own under any of their names."""
    return {
        path for path in paths if any(patterns.matches(name, ignore_case=ignore_case) for name in aliases(path, links))
    }
