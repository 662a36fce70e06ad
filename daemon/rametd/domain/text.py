"""Short texts for people, and text from file names and other programs."""

from collections.abc import Sequence


def utf8(text: str) -> str:
    """Convert ``text`` to valid UTF-8, for proto strings and logs: bytes of file names that are not
    UTF-8 become U+FFFD."""
    return text.encode(errors="surrogateescape").decode(errors="replace")


def first_line(words: str, limit: int = 200) -> str:
    """Return the first line with text, cut at ``limit`` characters."""
    for line in words.splitlines():
        if stripped := line.strip():
            return stripped if len(stripped) <= limit else stripped[: limit - 1] + "…"
    return ""


def dollars(amount: float) -> str:
    """Format an amount of US dollars in cents; an amount below a cent has two significant
    digits."""
    return f"${amount:.2f}" if amount >= 0.01 or amount <= 0 else f"${amount:.2g}"


def listed(names: Sequence[str], limit: int = 3) -> str:
    """List the first ``limit`` names in one line."""
    return ", ".join(names[:limit]) + (", …" if len(names) > limit else "")
