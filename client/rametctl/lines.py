"""What is shown to people, before it is known where: lines of spans, safe to print, and the columns they take."""

from collections.abc import Sequence
from dataclasses import dataclass

Span = tuple[str, str]
"""A text and its style: "", or words out of bold, dim, red, green, yellow, blue, magenta, cyan."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of spans, ``indent`` columns in. Where it is too long for the terminal it goes on below, ``hang`` columns further."""

    spans: tuple[Span, ...]
    indent: int = 0
    hang: int = 0

    @property
    def text(self) -> str:
        return " " * self.indent + "".join(text for text, _ in self.spans)


def line(*spans: str | Span, indent: int = 0, hang: int = 0) -> Line:
    """A line of plain texts and (text, style) pairs."""
    return Line(tuple((span, "") if isinstance(span, str) else span for span in spans), indent, hang)


def printable(text: str) -> str:
    """``text`` without what would control the terminal: an agent's output may hold any escape sequence.

    A control character is shown as its picture (␛), a tab as spaces.
    """
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char == "\n" else "    " if char == "\t" else _picture(char) for char in text
    )


REORDERING = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
INVISIBLE = frozenset("\u200b\u2060\ufeff\u00ad")
"""Characters that would make a text on the screen another one than the text that runs."""


def _picture(char: str) -> str:
    code = ord(char)
    if char in REORDERING or char in INVISIBLE:
        return "\N{REPLACEMENT CHARACTER}"
    if char == "\r":
        return ""
    if code < 0x20:
        return chr(0x2400 + code)
    return "\N{SYMBOL FOR DELETE}" if code == 0x7F else "\N{REPLACEMENT CHARACTER}" if 0x80 <= code < 0xA0 else char


def cell_width(text: str) -> int:
    """Columns that ``text`` takes on a terminal: wide characters take two, combining ones none."""
    if text.isascii():
        return len(text)
    import unicodedata

    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text
    )


def truncated(text: str, width: int) -> str:
    """``text`` on one line of at most ``width`` columns, ending in … where something is cut off."""
    text = printable(" ".join(text.split()))
    if cell_width(text) <= width:
        return text
    while text and cell_width(text) > width - 1:
        text = text[:-1]
    return text.rstrip() + "…"


def plain_row(row: Sequence[Span], widths: Sequence[int], right: Sequence[bool]) -> str:
    """The row as text; apart from `aligned_row` because a list of a thousand sessions is read by scripts."""
    return "  ".join(
        " " * (width - cell_width(text)) + text if to_right else text + " " * (width - cell_width(text))
        for (text, _), width, to_right in zip(row, widths, right, strict=True)
    ).rstrip()


def aligned_row(row: Sequence[Span], widths: Sequence[int], right: Sequence[bool]) -> Line:
    spans: list[Span] = []
    last = len(row) - 1
    for index, (text, style) in enumerate(row):
        columns = cell_width(text)
        if columns > widths[index]:
            text = truncated(text, widths[index])
            columns = cell_width(text)
        padding = " " * (widths[index] - columns)
        if right[index]:
            spans += [(padding, ""), (text, style)]
        else:
            spans += [(text, style), (padding if index < last else "", "")]
        if index < last:
            spans.append(("  ", ""))
    return Line(tuple(spans))


def cropped(item: Line, width: int) -> Line:
    """The line without what does not fit the screen at all."""
    spans: list[Span] = []
    for text, style in item.spans:
        columns = cell_width(text)
        if columns > width:
            spans.append((truncated(text, width) if text.strip() and width > 0 else "", style))
            break
        spans.append((text, style))
        width -= columns
    return Line(tuple(spans))
