"""Trust: what of a repository the person has seen and agreed to, bound to its content.

Everything that can run a command or widen what may run is an *item*: a key that says what it is and the text that a person is shown. A setting of
`.ramet.toml` is one item (``setup``, ``run.web``), so is a file that Claude loads (``.claude/settings.json``) and the check of a plan. The person trusts
items, never a place or a name: an item whose text has changed is another item.
"""

import difflib
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

Contents = Mapping[str, str]
"""The items of one place: text by key."""


def item_digest(key: str, text: str) -> str:
    return hashlib.sha256(f"{key}\0{text}".encode("utf-8", "surrogatepass")).hexdigest()


def digest_of(contents: Contents) -> str:
    """Identify contents: the person agrees to a digest, and the daemon stores only contents that have it."""
    digests = sorted(item_digest(key, text) for key, text in contents.items())
    return hashlib.sha256("".join(digests).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Trusted:
    """All items of a repository that the person has trusted, also before; ``latest`` has the newest text of each key."""

    digests: frozenset[str] = frozenset()
    latest: Contents = field(default_factory=dict)

    def covers(self, key: str, text: str) -> bool:
        return item_digest(key, text) in self.digests

    def withheld(self, contents: Contents) -> dict[str, str]:
        """The items that the person has not trusted as they are."""
        return {key: text for key, text in contents.items() if not self.covers(key, text)}

    def in_force(self, contents: Contents) -> dict[str, str]:
        """What counts of ``contents``: a trusted item as it is; for a changed one the newest trusted text of its key; a new one does not."""
        withheld = self.withheld(contents)
        return {
            key: self.latest[key] if key in withheld else text
            for key, text in contents.items()
            if key not in withheld or key in self.latest
        }

    def difference(self, contents: Contents) -> str:
        """A unified diff from the trusted texts to those of ``contents``, of the items that are withheld; "" where none is."""
        parts: list[str] = []
        for key, text in sorted(self.withheld(contents).items()):
            old = self.latest.get(key)
            before, after = ("" if old is None else old).splitlines(), text.splitlines()
            origin = "/dev/null" if old is None else f"trusted/{key}"
            parts += difflib.unified_diff(before, after, origin, f"now/{key}", lineterm="")
        return "\n".join(parts)
