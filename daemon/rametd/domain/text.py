"""Text from file names and other programs."""


def utf8(text: str) -> str:
    """``text`` as valid UTF-8, for proto strings and logs: bytes of file names that are not UTF-8 become U+FFFD."""
    return text.encode(errors="surrogateescape").decode(errors="replace")
