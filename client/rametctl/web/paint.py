"""Render the rows of a patch as HTML: colour the code, mark changed words, put comments below their
lines."""

import time
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise

from markupsafe import Markup, escape
from pygments.lexer import Lexer
from pygments.lexers import get_lexer_for_filename
from pygments.token import Token, _TokenType
from pygments.util import ClassNotFound
from ramet.visible import visible
from ramet.words import plural

from rametctl.render.diff import Range, changed_ranges
from rametctl.web.html import tokens
from rametctl.web.patches import Gap, Pair, Row

MARKING_S = 0.5
"""Seconds of processor time after which no more changed words are marked."""
MOST_SHOWN = 2000
"""Most characters of a line to show."""
_CLASSES = (
    (Token.Comment, "c"), (Token.Keyword, "k"), (Token.Operator.Word, "k"), (Token.Literal.String, "s"),
    (Token.Literal.Number, "mi"), (Token.Name.Function, "nf"), (Token.Name.Class, "nc"), (Token.Name.Decorator, "nf"),
    (Token.Name.Tag, "nt"), (Token.Name.Attribute, "nf"), (Token.Name.Constant, "no"), (Token.Generic.Heading, "nc"),
)  # fmt: skip

Piece = tuple[str, str]
"""A class of style.css or "", and a text."""
OLD, NEW = "old", "new"
Place = tuple[str, int]
"""A side, `OLD` or `NEW`, and a line number."""


def coloured(path: str, lines: Sequence[str]) -> list[list[Piece]]:
    """Split lines into coloured pieces, by the language of the file's name. The pieces of a line
    always add up to its text."""
    plain = [[("", line)] for line in lines]
    lexer = _lexer(path)
    lexed = tokens(lexer, "\n".join(lines)) if lexer is not None else None
    if not lexed:
        return plain
    found: list[list[Piece]] = [[]]
    for kind, value in lexed:
        for index, part in enumerate(value.split("\n")):
            if index:
                found.append([])
            name = _class(kind)
            if part and found[-1] and found[-1][-1][0] == name:
                found[-1][-1] = name, found[-1][-1][1] + part
            elif part:
                found[-1].append((name, part))
    return found


@lru_cache(256)
def _lexer(path: str) -> Lexer | None:
    try:
        return get_lexer_for_filename(path.rpartition("/")[2])
    except ClassNotFound:
        return None


@lru_cache(256)
def _class(kind: _TokenType) -> str:
    return next((name for root, name in _CLASSES if root in kind.split()), "")


def line_html(pieces: Sequence[Piece], spans: Sequence[Range]) -> Markup:
    """Render a line; ``spans`` are the ranges of changed words."""
    found: list[str] = []
    at = 0
    for name, text in pieces:
        for start, end, changed in _parts(at, at + len(text), spans):
            if start >= MOST_SHOWN:
                break
            part = str(shown(text[start - at : min(end, MOST_SHOWN) - at]))
            names = f"{name} w".strip() if changed else name
            found.append(f'<span class="{names}">{part}</span>' if names else part)
        at += len(text)
    if at > MOST_SHOWN:
        found.append(f'<span class="dim"> … {plural(at - MOST_SHOWN, "more character")}</span>')
    return Markup("".join(found))  # noqa: S704  every text in it is escaped


def shown(text: str) -> Markup:
    """Escape a text and make invisible characters visible, except tabs."""
    return escape("\t".join(visible(part) for part in text.split("\t")))


def _parts(start: int, end: int, spans: Sequence[Range]) -> Iterator[tuple[int, int, bool]]:
    """Cut the range from ``start`` to ``end`` at the bounds of spans; yield (start, end, whether it
    is in a span)."""
    cuts = sorted({start, end, *(edge for span in spans for edge in span if start < edge < end)})
    for one, other in pairwise(cuts):
        yield one, other, any(begin <= one and other <= stop for begin, stop in spans)


def rows_html(
    path: str, items: Sequence[Pair | Gap], *, split: bool, comments: Mapping[Place, Sequence[Markup]]
) -> Markup:
    """Render table rows. Each comment in ``comments`` gets a row below its line."""
    texts = _coloured_sides(path, items)
    until = time.thread_time() + MARKING_S
    found: list[str] = []
    for item in items:
        if isinstance(item, Gap):
            found.append(_gap(item, split=split))
            continue
        found.append(_pair(item, texts, until, split=split))
        for place in _places(item, split=split):
            said = Markup("").join(comments.get(place, ()))
            found.append(f'<tr class="said"><td colspan="{4 if split else 3}">{said}</td></tr>' if said else "")
    return Markup("".join(found))  # noqa: S704  every text in it is escaped


def shown_places(items: Sequence[Pair | Gap], *, split: bool) -> set[Place]:
    return {place for item in items if isinstance(item, Pair) for place in _places(item, split=split)}


def _places(pair: Pair, *, split: bool) -> Iterator[Place]:
    rows = [pair.left, pair.right] if split else [pair.left]
    seen: set[Place] = set()
    for row in rows:
        if row is not None:
            seen |= {(OLD, row.old), (NEW, row.new)}
    yield from sorted(place for place in seen if place[1])


def _coloured_sides(path: str, items: Sequence[Pair | Gap]) -> dict[int, list[Piece]]:
    """Return coloured pieces by `id` of the row. Each side is coloured as one text, so that
    multi-line strings are recognised."""
    rows = [row for item in items if isinstance(item, Pair) for row in (item.left, item.right) if row is not None]
    found: dict[int, list[Piece]] = {}
    for wanted in ("- ", "+ "):
        side = list({id(row): row for row in rows if row.mark in wanted}.values())
        side.sort(key=lambda row: row.old if wanted == "- " else row.new)
        if wanted == "+ " or any(row.mark == "-" for row in side):
            found |= zip(map(id, side), coloured(path, [row.text for row in side]), strict=True)
    return found


def _gap(gap: Gap, *, split: bool) -> str:
    words = plural(gap.lines, "line") if gap.lines else ""
    button = f'<button type="button" class="plain" data-whole>⋯ {words}</button> ' if gap.lines else ""
    heading = shown(gap.heading[:MOST_SHOWN])
    return f'<tr class="gap"><td colspan="{4 if split else 3}">{button}<span>{heading}</span></td></tr>'


def _pair(pair: Pair, texts: Mapping[int, list[Piece]], until: float, *, split: bool) -> str:
    left, right = pair.left, pair.right
    if not split:
        assert left is not None
        numbers = _number(OLD, left.old) + _number(NEW, left.new)
        return f'<tr tabindex="-1">{numbers}{_cell(left, right, texts, until)}</tr>'
    return (
        f'<tr tabindex="-1">{_number(OLD, left.old if left else 0)}{_cell(left, right, texts, until)}'
        f"{_number(NEW, right.new if right else 0)}{_cell(right, left, texts, until)}</tr>"
    )


def _number(side: str, number: int) -> str:
    return f'<td class="n" data-side="{side}" data-n="{number}"></td>' if number else '<td class="n"></td>'


def _cell(row: Row | None, partner: Row | None, texts: Mapping[int, list[Piece]], until: float) -> str:
    if row is None:
        return '<td class="none"></td>'
    spans: Sequence[Range] = ()
    if partner is not None and partner is not row and time.thread_time() < until:
        old, new = (row, partner) if row.mark == "-" else (partner, row)
        spans = changed_ranges(old.text, new.text)[0 if row is old else 1]
    kind = {"-": " del", "+": " add"}.get(row.mark, "")
    unended = '<span class="dim"> (no line feed at the end)</span>' if row.unended else ""
    return f'<td class="t{kind}">{line_html(texts[id(row)], spans)}{unended}</td>'
