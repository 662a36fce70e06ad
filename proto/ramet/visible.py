"""Text made safe to show: nothing in it controls a terminal, and nothing in it is invisible."""

import re
from functools import cache

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
_PICTURE = (
    "[\xa9\xae\u203c\u2049\u2122\u2139\u2194-\u2199\u21a9\u21aa\u231a\u231b\u2328\u23cf\u23e9-\u23f3\u23f8-\u23fa\u24c2"
    "\u25aa\u25ab\u25b6\u25c0\u25fb-\u25fe\u2600-\u2605\u2607-\u2612\u2614-\u2685\u2690-\u2705\u2708-\u2712\u2714\u2716\u271d"
    "\u2721\u2728\u2733\u2734\u2744\u2747\u274c\u274e\u2753-\u2755\u2757\u2763-\u2767\u2795-\u2797\u27a1\u27b0\u27bf\u2934"
    "\u2935\u2b05-\u2b07\u2b1b\u2b1c\u2b50\u2b55\u3030\u303d\u3297\u3299"
    "\U0001f000-\U0001f1e5\U0001f201-\U0001f3fa\U0001f400-\U0001faff]\ufe0f?[\U0001f3fb-\U0001f3ff]?"
)
"""A pictograph (Extended_Pictographic), in colour and with a skin tone."""
_EMOJI = (
    # The flags of England, Scotland and Wales; a key cap; a pictograph, or several joined to one
    "\U0001f3f4\U000e0067\U000e0062(?:\U000e0065\U000e006e\U000e0067|\U000e0073\U000e0063\U000e0074|\U000e0077\U000e006c\U000e0073)\U000e007f"
    f"|[0-9#*]\ufe0f\u20e3|{_PICTURE}(?:\u200d{_PICTURE})*"
)


@cache
def _unsafe() -> re.Pattern[str]:
    """Explicit ranges: the table of the running Python may be older than the text. Compiled for the
    first text that is not plain."""
    return re.compile(f"(?P<emoji>{_EMOJI})|\r\n|[{_HIDDEN}]")


def visible(text: str) -> str:
    """``text`` with a visible sign for each character that would control the terminal, reorder the
    text, or print nothing.

    A control character becomes its picture (␛), a tab four spaces, and any other of them U+FFFD.
    Line feeds stay, and a carriage return before one goes. What joins or colours an emoji stays
    inside one, and only there.
    """
    return text if text.isascii() and text.isprintable() else _unsafe().sub(_sign, text)


def escaped(json: str) -> str:
    """The same JSON, with escapes in its strings for what `visible` replaces."""
    return json if json.isascii() and json.isprintable() else _unsafe().sub(_escape, json)


def _sign(match: re.Match[str]) -> str:
    char = match[0]
    if match["emoji"]:
        return char
    if char == "\t":
        return "    "
    if char == "\r\n":
        return "\n"
    code = ord(char)
    if code < 0x20:
        return chr(0x2400 + code)
    return "\N{SYMBOL FOR DELETE}" if code == 0x7F else "\N{REPLACEMENT CHARACTER}"


def _escape(match: re.Match[str]) -> str:
    if match["emoji"]:
        return match[0]
    units = match[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at] << 8 | units[at + 1]:04x}" for at in range(0, len(units), 2))
