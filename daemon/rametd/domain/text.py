"""Text that came from file names and other programs."""


def utf8(text: str) -> str:
    """What the contract's strings and the log can hold: names of files are bytes, and those that are not UTF-8 are shown as well as can be."""
    return text.encode(errors="surrogateescape").decode(errors="replace")
