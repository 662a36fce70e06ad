"""Text made safe to show: nothing in it controls a terminal, and nothing in it is invisible."""

import re

_HIDDEN = (
    # Control characters (C0 without the line feed, DEL, C1), line and paragraph separators,
    # surrogates
    "\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff"
    # Format characters (category Cf): they join, reorder or mark others, and print nothing themselves
    "\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff"
    "\ufff0-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff"
    # Fillers, variation selectors and blanks of other categories: default ignorable, or drawn as nothing
    "\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U00016fe4\U0001d159"
)
_UNSAFE = re.compile(f"\r\n|[{_HIDDEN}]")
"""Explicit ranges: the table of the running Python may be older than the text."""


def visible(text: str) -> str:
    """``text`` with a visible sign for each character that would control the terminal, reorder the
    text, or print nothing.

    A control character becomes its picture (␛), a tab four spaces, and any other of them U+FFFD.
    Line feeds stay, and a carriage return before one goes. Emoji that are joined of several, or
    that a variation selector makes colourful, lose that: a text to be approved must show all that
    it holds.
    """
    return text if text.isascii() and text.isprintable() else _UNSAFE.sub(_sign, text)


def escaped(json: str) -> str:
    """The same JSON, with escapes in its strings for what `visible` replaces."""
    return json if json.isascii() and json.isprintable() else _UNSAFE.sub(_escape, json)


def _sign(match: re.Match[str]) -> str:
    char = match[0]
    if char == "\t":
        return "    "
    if char == "\r\n":
        return "\n"
    code = ord(char)
    if code < 0x20:
        return chr(0x2400 + code)
    return "\N{SYMBOL FOR DELETE}" if code == 0x7F else "\N{REPLACEMENT CHARACTER}"


def _escape(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at] << 8 | units[at + 1]:04x}" for at in range(0, len(units), 2))
