"""Words that daemon and client have in common."""


def plural(count: int, noun: str) -> str:
    """``0 files``, ``1 file``, ``2 files``: a count with its noun, of which the last word is put into the plural."""
    return f"{count} {noun if count == 1 else _many(noun)}"


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
