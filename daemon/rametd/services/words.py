"""Words for people, made short."""


def first_line(words: str, limit: int = 200) -> str:
    """The first line that says something, cut at ``limit`` characters."""
    for line in words.splitlines():
        if stripped := line.strip():
            return stripped if len(stripped) <= limit else stripped[: limit - 1] + "…"
    return ""


def listed(names: list[str], limit: int = 3) -> str:
    return ", ".join(names[:limit]) + (", …" if len(names) > limit else "")
