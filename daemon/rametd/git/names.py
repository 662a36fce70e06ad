"""Branch names from labels and prompts: names that git accepts, that no branch has yet, and that a
person can type.

The label itself is stored elsewhere, so the conversion need not be reversible.
"""

import re
import unicodedata
from collections.abc import Collection
from itertools import chain, count
from typing import Final

from rametd.domain.errors import BadNameError

LIMIT: Final = 60
"""Maximum characters of a generated name, before a suffix that makes it unique."""

DERIVED_LIMIT: Final = 24
"""Maximum characters of a session's name that is derived from its prompt."""

_FILLERS: Final = frozenset(
    [
        "a",
        "an",
        "and",
        "are",
        "as",
        "at",
        "be",
        "by",
        "can",
        "could",
        "do",
        "for",
        "from",
        "how",
        "i",
        "in",
        "is",
        "it",
        "its",
        "me",
        "my",
        "of",
        "on",
        "or",
        "our",
        "please",
        "should",
        "so",
        "some",
        "that",
        "the",
        "their",
        "them",
        "then",
        "there",
        "these",
        "this",
        "to",
        "us",
        "we",
        "why",
        "with",
        "would",
        "you",
        "your",
    ]
)
"""Words to omit from a name that is derived from a prompt."""

# Names of git's own files next to the refs; on a file system that ignores case, `head` is HEAD.
_RESERVED: Final = frozenset({"head", "fetch_head", "orig_head", "merge_head"})


def slug(text: str, limit: int = LIMIT) -> str:
    """Convert ``text`` to a path of lower-case ASCII words, "" if nothing is left.

    Keeps ``/`` between words (``feature/x``), drops accents, and cuts a sentence at the end of a
    word.
    """
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    parts = (_component(part) for part in plain.split("/"))
    name = "/".join(part for part in parts if part)
    if len(name) > limit:
        head, dash, _ = name[:limit].rpartition("-")
        name = _trim(head if dash and len(head) >= limit // 2 and name[limit] != "-" else name[:limit])
    return name


def short_slug(text: str) -> str:
    """Convert a sentence to a slug that fits a column: omit articles and the like, and cut it at
    the end of a word."""
    words = re.split(r"\s+", text)
    telling = [word for word in words if word.strip(".,;:!?\"'").lower() not in _FILLERS]
    return slug(" ".join(telling), DERIVED_LIMIT) or slug(text, DERIVED_LIMIT)


def branch_name(text: str, *, fallback: str, taken: Collection[str] = ()) -> str:
    """Return a valid branch name for ``text`` that collides with none of ``taken``, neither by
    letter case nor as file and directory.

    ``fallback`` (an id) is for a ``text`` without usable characters. A taken name gets ``-2``,
    ``-3`` and so on.
    """
    wanted = slug(text)
    if not wanted or wanted in _RESERVED or re.fullmatch("[0-9a-f]{40}", wanted):
        wanted = fallback
    used = {name.casefold() for name in taken}
    if any(parent in used for parent in parents(wanted)):  # `a` exists, so that `a/b` cannot
        wanted = wanted.replace("/", "-")
    folders = used.union(*(parents(name) for name in used))
    return next(name for name in chain([wanted], (f"{wanted}-{n}" for n in count(2))) if name not in folders)


def check_branch_name(name: str) -> str:
    """Return ``name`` if git accepts it as a branch (git-check-ref-format(1)), else raise
    BadNameError."""
    problem = _problem(name)
    if problem:
        suggestion = slug(name)
        hint = f"try {suggestion!r}" if suggestion else "use letters, digits and dashes"
        raise BadNameError(f"{name[:80]!r} cannot be a branch name: {problem}", hint=hint, name=name[:256])
    return name


def conflict(name: str, taken: Collection[str]) -> str | None:
    """Return the branch of ``taken`` that conflicts with ``name``, because one would be a file and
    the other a directory."""
    above = set(parents(name))
    return next((other for other in taken if other in above or other.startswith(f"{name}/")), None)


def _problem(name: str) -> str | None:
    parts = name.split("/")
    checks = (
        (not name or "" in parts, "a part of it is empty"),
        (len(name.encode()) > 200, "it is longer than 200 bytes"),
        (name.startswith("-"), "it begins with a dash"),
        (name in ("HEAD", "@"), "git uses that name itself"),
        (any(part.startswith(".") for part in parts), "a part of it begins with a dot"),
        (any(part.endswith(".lock") for part in parts), "a part of it ends in .lock"),
        (name.endswith("."), "it ends in a dot"),
        (".." in name or "@{" in name, "it contains '..' or '@{'"),
        (re.search(r"[\x00-\x20\x7f~^:?*\[\\]", name) is not None, "it contains a space or one of ~^:?*[\\"),
    )
    return next((words for holds, words in checks if holds), None)


def _component(part: str) -> str:
    words = re.sub(r"\.{2,}", ".", re.sub(r"[^a-z0-9._]+", "-", part))
    words = re.sub(r"(\.?-)+", "-", words).strip("-._")  # a sentence's full stop goes with the space after it
    return _trim(re.sub(r"[-._]*\.lock$", "-lock", words))


def _trim(words: str) -> str:
    words = words.strip("-._/")
    while words.endswith(".lock"):  # cutting "x.locker" short can uncover it
        words = words.removesuffix(".lock").strip("-._/")
    return words


def parents(name: str) -> list[str]:
    """Return the names that would be directories for ``name``."""
    parts = name.split("/")
    return ["/".join(parts[:n]) for n in range(1, len(parts))]
