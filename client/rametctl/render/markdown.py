"""Markdown that agents write, as styled lines for a terminal.

The text is hostile: links are spelled out and never clickable, HTML is shown as source, and
printing makes characters from entities visible.
"""

import io
from collections.abc import Iterator
from copy import copy
from functools import cache
from typing import TYPE_CHECKING, Any

from ramet.visible import visible

from rametctl.console.lines import Line, Span

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from rich.console import Console
    from rich.markdown import Markdown
    from rich.style import Style

MAX_CHARACTERS = 64 * 1024
"""Characters; the rest of a longer text is shown as source."""
COLOURS = frozenset({"red", "green", "yellow", "blue", "magenta", "cyan"})
STYLES = {
    "markdown.code": "cyan",
    "markdown.code_block": "cyan",
    "markdown.h1": "bold",
    "markdown.h2": "bold",
    "markdown.h3": "bold",
    "markdown.h4": "bold",
    "markdown.h5": "bold",
    "markdown.h6": "bold",
    "markdown.h7": "bold",
    "markdown.block_quote": "dim",
    "markdown.hr": "dim",
    "markdown.item.bullet": "cyan",
    "markdown.item.number": "cyan",
    "markdown.link": "none",
    "markdown.link_url": "dim",
    "markdown.table.border": "dim",
    "markdown.table.header": "bold",
}


def markdown_lines(text: str, width: int, style: str = "") -> list[Line]:
    """Render Markdown for ``width`` columns, with ``style`` as the base style."""
    text = visible(text).strip("\n")
    head, tail = text[:MAX_CHARACTERS], text[MAX_CHARACTERS:]
    lines = [_line(segments, style) for segments in _rendered(head, max(width, 20))]
    # A table without a border has empty lines around it.
    lines = [each for each in lines if not (each.spans and not each.text)]
    lines += [Line(((part, style),)) for part in tail.split("\n")] if tail else []
    while lines and not lines[-1].text.strip():
        lines.pop()
    return lines


def _rendered(text: str, width: int) -> Iterator[Any]:
    console, renderable = _console(), _markdown(text)
    yield from console.render_lines(renderable, console.options.update(width=width), pad=False)


def _line(segments: Any, style: str) -> Line:
    spans: list[Span] = [
        (segment.text, " ".join(filter(None, (style, _words(segment.style))))) for segment in segments if segment.text
    ]
    if spans:
        spans[-1] = (spans[-1][0].rstrip(), spans[-1][1])
    return Line(tuple(spans))


def _words(style: "Style | None") -> str:
    """Return a Rich style in the words that `Span` knows."""
    if style is None:
        return ""
    words = [name for name in ("bold", "dim", "italic", "underline", "strike") if getattr(style, name)]
    if style.color is not None and style.color.name in COLOURS:
        words.append(style.color.name)
    return " ".join(words)


@cache
def _console() -> "Console":
    from rich.console import Console
    from rich.theme import Theme

    return Console(
        file=io.StringIO(), width=80, color_system="standard", force_terminal=True, highlight=False, theme=Theme(STYLES)
    )


def _markdown(text: str) -> "Markdown":
    empty, parser = _empty()
    made = copy(empty)
    made.markup, made.parsed = text, parser.parse(text)
    return made


@cache
def _empty() -> "tuple[Markdown, MarkdownIt]":
    """Return a document and the parser. Creating them takes longer than a message, so cache them;
    importing them takes as long as the rest of a command, so import them late."""
    from markdown_it import MarkdownIt
    from rich.markdown import CodeBlock, Heading, Markdown
    from rich.padding import Padding
    from rich.text import Text

    class Title(Heading):
        def __rich_console__(self, console: Any, options: Any) -> Iterator[Any]:
            self.text.justify = "left"
            yield self.text

    class Code(CodeBlock):
        """A theme without background and colours of its own, which would differ from the
        terminal's."""

        def __rich_console__(self, console: Any, options: Any) -> Iterator[Any]:
            yield Padding(Text(str(self.text).rstrip(), style="markdown.code_block"), (0, 0, 0, 2))

    class Source(Markdown):
        elements = {  # noqa: RUF012 - as the base class has it
            **Markdown.elements, "heading_open": Title, "fence": Code, "code_block": Code,
        }  # fmt: skip

    parser = MarkdownIt("commonmark", {"html": False}).enable("strikethrough").enable("table")
    return Source("", hyperlinks=False), parser
