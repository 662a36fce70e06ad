"""Words that daemon and client have in common."""


def plural(count: int, noun: str) -> str:
    """``0 files``, ``1 file``, ``2 files``: a count with its noun, of which the last word is put
    into the plural."""
    return f"{count} {noun if count == 1 else _many(noun)}"


def token_count(count: float) -> str:
    """A number of tokens: 950, 12.5k, 2M."""
    for step, unit in ((1_000_000, "M"), (1000, "k")):
        if count >= step:
            return f"{count / step:.4g}{unit}"
    return f"{count:.0f}"


def tokens(count: float) -> str:
    """``1 token``, ``12.5k tokens``."""
    return f"{token_count(count)} {'token' if count == 1 else 'tokens'}"


def size(count: float) -> str:
    """512 B, 1.2 KiB, 34 MiB, 5.6 GiB; "-" for nothing."""
    if count <= 0:
        return "-"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.1f} {unit}" if count < 10 and unit != "B" else f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def _many(noun: str) -> str:
    if noun.endswith("y") and noun[-2:-1] not in tuple("aeiou"):
        return f"{noun[:-1]}ies"
    return f"{noun}es" if noun.endswith(("s", "x", "ch", "sh")) else f"{noun}s"
