"""Trust: the contents of a repository that the person has seen and approved.

Everything that can run a command, or allow more commands, is an *item*: a key, and the text that
the person sees. Items are the settings of `.ramet.toml` (``setup``, ``run.web``), the files that
Claude loads (``.claude/settings.json``) and the checks of plans. The person trusts an item by its
content, never by path or name: a changed text is a new item.
"""

import difflib
import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

Contents = Mapping[str, str]
"""The items of one place: text by key."""
UNBOUNDED = ".claude (too many files)"
"""Key of the item that replaces files if they are too many to compare. It is never trusted."""
SIZE_LIMIT = 1 << 20
"""Maximum bytes of a file to show; of a larger one only the digest is shown."""


def shown(data: bytes) -> str:
    """Convert a file to text for a person. Different bytes give different texts."""
    try:
        if len(data) <= SIZE_LIMIT:
            return data.decode()
    except UnicodeDecodeError:
        pass
    return f"{len(data):,} bytes that are not shown, sha256 {hashlib.sha256(data).hexdigest()}"


def item_digest(key: str, text: str) -> str:
    return hashlib.sha256(f"{key}\0{text}".encode("utf-8", "surrogatepass")).hexdigest()


def digest_of(contents: Contents) -> str:
    """Digest of ``contents``. The person approves a digest, and the daemon trusts only contents
    that match it."""
    digests = sorted(item_digest(key, text) for key, text in contents.items())
    return hashlib.sha256("".join(digests).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Trusted:
    """All items of a repository that the person has ever trusted. ``latest``: the newest trusted
    text by key."""

    digests: frozenset[str] = frozenset()
    latest: Contents = field(default_factory=dict)

    def covers(self, key: str, text: str) -> bool:
        return key != UNBOUNDED and item_digest(key, text) in self.digests

    def withheld(self, contents: Contents) -> dict[str, str]:
        """The items that the person has not trusted with this text."""
        return {key: text for key, text in contents.items() if not self.covers(key, text)}

    def in_force(self, contents: Contents) -> dict[str, str]:
        """The items in force: trusted items, and changed ones with their newest trusted text,
        without new ones."""
        withheld = self.withheld(contents)
        return {
            key: self.latest[key] if key in withheld else text
            for key, text in contents.items()
            if key not in withheld or key in self.latest
        }

    def difference(self, contents: Contents) -> str:
        """Unified diff from the trusted texts to the withheld items of ``contents``; "" if none is
        withheld."""
        parts: list[str] = []
        for key, text in sorted(self.withheld(contents).items()):
            old = self.latest.get(key)
            origin = "/dev/null" if old is None else f"trusted/{key}"
            parts += _difference(old or "", text, origin, f"now/{key}")
        return "\n".join(parts)


def _difference(old: str, new: str, origin: str, now: str) -> Iterator[str]:
    """Unified diff of two different texts, never empty. Only "\\n" ends a line. A mark shows that
    a text has no line break at its end."""
    if old and new and not (old.endswith("\n") or new.endswith("\n")):
        old, new = f"{old}\n", f"{new}\n"
    before, after = (re.findall(r"[^\n]*\n|[^\n]+", text) for text in (old, new))
    for i, line in enumerate(difflib.unified_diff(before, after, origin, now, lineterm="")):
        yield line.removesuffix("\n")
        if old and i > 1 and not line.startswith("@") and not line.endswith("\n"):
            yield "\\ No newline at end of file"
