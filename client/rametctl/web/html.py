"""Texts of agents, repositories and trackers as HTML. The input is data, and never interpreted as
HTML."""

import time
from collections.abc import Iterable
from functools import cache
from typing import Any

import pygments
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markupsafe import Markup, escape
from pygments.formatters import HtmlFormatter
from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name
from pygments.token import _TokenType
from pygments.util import ClassNotFound
from ramet.visible import visible

from rametctl.console.lines import Line, Span

MOST_MARKED_UP = 50_000
"""Characters of Markdown; longer text is shown as source."""
MOST_COLOURED = 60_000
"""Characters of code that are coloured; more is shown plain, as is code with a line of more than
`LONGEST_LINE`."""
LONGEST_LINE = 1000
COLOURING_S = 0.05
"""Seconds of processor time after which code is shown plain."""
COLOURED = frozenset(
    [
        "awk",
        "bash",
        "bat",
        "c",
        "clojure",
        "cmake",
        "console",
        "cpp",
        "csharp",
        "css",
        "cython",
        "d",
        "dart",
        "diff",
        "docker",
        "elixir",
        "erlang",
        "fortran",
        "fsharp",
        "glsl",
        "go",
        "graphql",
        "groovy",
        "haskell",
        "html",
        "html+jinja",
        "ini",
        "java",
        "javascript",
        "json",
        "jsx",
        "julia",
        "kotlin",
        "less",
        "lua",
        "make",
        "markdown",
        "nginx",
        "nix",
        "objective-c",
        "ocaml",
        "output",
        "perl",
        "php",
        "postgresql",
        "powershell",
        "properties",
        "protobuf",
        "pycon",
        "pytb",
        "python",
        "ruby",
        "rust",
        "scss",
        "splus",
        "sql",
        "swift",
        "terraform",
        "tex",
        "toml",
        "tsx",
        "typescript",
        "vim",
        "vue",
        "xml",
        "yaml",
        "zig",
    ]
)
"""Languages that are coloured: their lexers process every text piece by piece. Scala's, for
example, does not end on some."""
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
    """Markdown of an agent: HTML in it is text, an image is its words, and a link leads to http(s)
    only, by a click."""
    if len(text) > MOST_MARKED_UP:
        return Markup("<pre>{}</pre>").format(visible(text))
    return Markup(_parser().render(visible(text)))  # noqa: S704  the parser escapes


def code(text: str, language: str) -> Markup:
    """Return code, coloured if the language is known."""
    try:
        lexer = get_lexer_by_name(language.split(" ", maxsplit=1)[0]) if language else None
    except ClassNotFound:
        lexer = None
    found = tokens(lexer, text) if lexer is not None else None
    if found is None:
        return escape(text)
    return Markup(pygments.format(found, HtmlFormatter(nowrap=True)))  # noqa: S704  the formatter escapes


def tokens(lexer: Lexer, text: str) -> list[tuple[_TokenType, str]] | None:
    """Return the text as tokens; None if that would take long. Agents choose text and language, and
    for many a lexer there are texts whose regular expressions take quadratic time, in which the
    server would do nothing else."""
    if (
        len(text) > MOST_COLOURED
        or lexer.aliases[0] not in COLOURED
        or any(len(each) > LONGEST_LINE for each in text.split("\n"))
    ):
        return None
    found: list[tuple[_TokenType, str]] = []
    end = time.thread_time() + COLOURING_S
    for _, kind, value in lexer.get_tokens_unprocessed(text):
        found.append((kind, value))
        if time.thread_time() > end:
            return None
    return found if "".join(value for _, value in found) == text else None  # a lexer that drops or repeats something


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
