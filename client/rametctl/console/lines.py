"""Lines of styled spans, safe to print, and their width in columns."""

import io
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING

from ramet.visible import visible

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

Span = tuple[str, str]
"""A text and its style: "", or words out of bold, dim, italic, underline, strike, reverse, red,
green, yellow, blue, magenta, cyan."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of spans, ``indent`` columns in. If it is longer than the terminal is wide, it wraps,
    indented ``hang`` columns further."""

    spans: tuple[Span, ...]
    indent: int = 0
    hang: int = 0

    @property
    def text(self) -> str:
        return " " * self.indent + "".join(text for text, _ in self.spans)


@dataclass(frozen=True, slots=True)
class Look:
    """How to draw entries of a transcript: with Markdown for ``width`` columns, or as plain text
    (None); folded or in full."""

    width: int | None = None
    folded: bool = True


def safe(item: Line) -> Line:
    """Return the line with control characters made safe for a terminal."""
    return Line(tuple((visible(text), style) for text, style in item.spans), item.indent, item.hang)


def line(*spans: str | Span, indent: int = 0, hang: int = 0) -> Line:
    """Create a line of plain texts and (text, style) pairs."""
    return Line(tuple((span, "") if isinstance(span, str) else span for span in spans), indent, hang)


def to_text(items: Iterable[Line]) -> "Text":
    """Return the lines, made safe, as one text for Rich and Textual."""
    from rich.text import Text

    text = Text(no_wrap=True, overflow="ellipsis")
    for index, item in enumerate(map(safe, items)):
        text.append(("\n" if index else "") + " " * item.indent)
        for part, style in item.spans:
            text.append(part, style=style)
    return text


def wrapped(item: Line, width: int) -> list[Line]:
    """Wrap the line to ``width`` columns between words, with a hanging indent."""
    if "\n" not in item.text and cell_width(item.text) <= width:
        return [item]
    from rich.text import Text

    text = Text()
    for content, style in item.spans:
        text.append(content, style=style)
    room = max(width - item.indent - item.hang, 20)
    return [
        Line(_spans(part), item.indent + (item.hang if index else 0))
        for index, part in enumerate(text.wrap(_wrapping_console(), room))
    ]


def _spans(text: "Text") -> tuple[Span, ...]:
    edges = sorted({0, len(text.plain), *(edge for span in text.spans for edge in (span.start, span.end))})
    return tuple(
        (
            text.plain[start:end],
            " ".join(str(span.style) for span in text.spans if span.start <= start and end <= span.end),
        )
        for start, end in pairwise(edges)
    )


@cache
def _wrapping_console() -> "Console":
    """Console that Rich requires for wrapping, without using it."""
    from rich.console import Console

    return Console(file=io.StringIO(), width=80)


_JOINER, _COLOURED = "\u200d", "\ufe0f"
_SKIN_TONES = frozenset(map(chr, range(0x1F3FB, 0x1F400)))
_TAGS = frozenset(map(chr, range(0xE0020, 0xE0080)))
"""Of the flags of England, Scotland and Wales."""
_COMBINING = frozenset({"Mn", "Me"})


def cell_width(text: str) -> int:
    """Return the columns of ``text`` on a terminal: two for wide characters and emoji, none for
    combining ones."""
    if text.isascii():
        return len(text)
    return sum(_widths(text))


def _widths(text: str) -> Iterator[int]:
    """Yield the columns that each character adds. An emoji of several characters takes two."""
    before, whole = "", 0  # the previous character, and the columns since the last one with a place of its own
    for char in text:
        if char.isascii():
            whole = width = 1
        elif before == _JOINER or char == _JOINER or unicodedata.category(char) in _COMBINING or char in _TAGS:
            width = 2 - whole if char == _COLOURED and whole == 1 else 0
            whole += width
        elif char in _SKIN_TONES and before > "\xff":
            width = max(2 - whole, 0)
            whole += width
        else:
            whole = width = 2 if unicodedata.east_asian_width(char) in "WF" else 1
        before = char
        yield width


def truncated(text: str, width: int) -> str:
    """Cut ``text`` to one line of at most ``width`` columns, with … at the end if it was cut."""
    text = visible(" ".join(text.split()))
    if len(text) <= width and text.isascii():
        return text
    used, fits = 0, 0  # `fits` characters leave room for the …
    for index, columns in enumerate(_widths(text)):
        used += columns
        if used > width:
            return text[:fits].rstrip() + "…"
        if used < width:
            fits = index + 1
    return text


def padded(text: str, width: int, to_right: bool) -> str:
    """Pad ``text`` with blanks to ``width`` columns."""
    if text.isascii():
        return text.rjust(width) if to_right else text.ljust(width)
    blanks = " " * (width - cell_width(text))
    return blanks + text if to_right else text + blanks


def plain_row(row: Sequence[Span], widths: Sequence[int], right: Sequence[bool]) -> str:
    """Return the row as text; faster than `aligned_row` for lists that scripts read."""
    return "  ".join([padded(row[index][0], width, right[index]) for index, width in enumerate(widths)]).rstrip()


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
    """Drop columns of the line that do not fit on the screen at all."""
    spans: list[Span] = []
    for text, style in item.spans:
        columns = cell_width(text)
        if columns > width:
            blanks = len(text) - len(text.lstrip(" "))
            if text.strip() and width > blanks:
                spans.append((" " * blanks + truncated(text, width - blanks), style))
            break
        spans.append((text, style))
        width -= columns
    return Line(tuple(spans))
