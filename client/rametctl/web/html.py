"""Texts of agents, repositories and trackers as HTML. What comes in is data: nothing of it is taken as HTML."""

from collections.abc import Iterable
from functools import cache
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markupsafe import Markup, escape
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name
from pygments.util import ClassNotFound
from ramet.visible import visible

from rametctl.lines import Line, Span

MOST_COLOURED = 100_000
"""Characters of code that are coloured; more is shown plain."""
_INDENT = 2


def span(item: Span) -> Markup:
    """A styled text; its style's words are the element's classes."""
    text, style = item
    shown = escape(visible(text))
    return Markup('<span class="{}">{}</span>').format(style, shown) if style else shown


def line(item: Line) -> Markup:
    content = Markup("").join(map(span, item.spans))
    return Markup('<div class="line in-{}">{}</div>').format(
        min(item.indent // _INDENT, 6), content or Markup("&nbsp;")
    )


def lines(items: Iterable[Line]) -> Markup:
    return Markup("").join(map(line, items))


def markdown(text: str) -> Markup:
    """Markdown of an agent: HTML in it is text, an image is its words, and a link leads to http(s) only, by a click."""
    return Markup(_parser().render(visible(text)))  # noqa: S704  the parser escapes


def code(text: str, language: str) -> Markup:
    """Code, coloured where the language is known."""
    try:
        lexer = get_lexer_by_name(language.split(" ", maxsplit=1)[0]) if language else None
    except ClassNotFound:
        lexer = None
    if lexer is None or len(text) > MOST_COLOURED:
        return escape(text)
    return Markup(highlight(text, lexer, HtmlFormatter(nowrap=True)))  # noqa: S704  the formatter escapes


@cache
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    parser.add_render_rule("image", _image)
    parser.add_render_rule("link_open", _link_open)
    parser.add_render_rule("fence", _fence)
    return parser


def _image(renderer: RendererHTML, tokens: list[Token], index: int, options: Any, env: Any) -> str:
    image = tokens[index]
    return str(Markup("[image: {}]").format(image.content or image.attrGet("src") or ""))


def _link_open(renderer: RendererHTML, tokens: list[Token], index: int, options: Any, env: Any) -> str:
    target = str(tokens[index].attrGet("href") or "")
    if not target.startswith(("http://", "https://")):
        return str(Markup('<a title="{}">').format(target))
    link = '<a href="{}" title="{}" target="_blank" rel="noopener noreferrer nofollow">'
    return str(Markup(link).format(target, target))  # noqa: S704  a constant


def _fence(renderer: RendererHTML, tokens: list[Token], index: int, options: Any, env: Any) -> str:
    fence = tokens[index]
    return str(Markup("<pre><code>{}</code></pre>\n").format(code(fence.content, fence.info.strip())))
