"""Charts and graphs as SVG: pure functions of values. Colours are classes of style.css; texts are
data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup
from ramet.visible import visible

BOX = (220, 74)
GAP = (70, 22)
_TEXT = 26
"""Characters that fit into a box."""


@dataclass(frozen=True)
class Node:
    """A box of a graph. ``share`` is its progress from 0 to 1; ``style`` a class."""

    id: str
    title: str
    lines: Sequence[str] = ()
    share: float = 0.0
    style: str = ""
    link: str = ""


def layers(after: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """Return the nodes in columns: each is right of its predecessors, which must be nodes; a circle
    is cut."""
    depth: dict[str, int] = {}

    def place(id_: str, above: frozenset[str]) -> int:
        if id_ not in depth:
            earlier = [each for each in after[id_] if each in after and each not in above | {id_}]
            depth[id_] = max((place(each, above | {id_}) + 1 for each in earlier), default=0)
        return depth[id_]

    for id_ in after:
        place(id_, frozenset())
    columns: list[list[str]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    for id_ in after:
        columns[depth[id_]].append(id_)
    rows: dict[str, float] = {}
    for column in columns:
        # Near its predecessors, so that lines cross less.
        column.sort(key=lambda id_: _middle([rows[each] for each in after[id_] if each in rows]))
        rows |= {id_: float(row) for row, id_ in enumerate(column)}
    return columns


def _middle(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def graph(nodes: Sequence[Node], after: Mapping[str, Sequence[str]], label: str) -> Markup:
    """Return boxes with lines from their predecessors, left to right."""
    columns = layers({node.id: after.get(node.id, ()) for node in nodes})
    known = {node.id: node for node in nodes}
    places = {
        id_: (column * (BOX[0] + GAP[0]) + 2, row * (BOX[1] + GAP[1]) + 2)
        for column, ids in enumerate(columns)
        for row, id_ in enumerate(ids)
    }
    width = len(columns) * (BOX[0] + GAP[0]) - GAP[0] + 4
    height = max((len(column) for column in columns), default=0) * (BOX[1] + GAP[1]) - GAP[1] + 4
    lines = [
        _edge(places[before], places[id_])
        for id_, befores in after.items()
        for before in befores
        if before in places and id_ in places
    ]
    boxes = [_box(known[id_], *places[id_]) for column in columns for id_ in column]
    return _svg(max(width, 4), max(height, 4), label, [*lines, *boxes])


def _svg(width: float, height: float, label: str, parts: Sequence[Markup]) -> Markup:
    return Markup(
        '<svg class="chart" viewBox="0 0 {0} {1}" width="{0}" height="{1}" role="img" aria-label="{2}">{3}</svg>'
    ).format(f"{width:g}", f"{height:g}", visible(label), Markup("").join(parts))


def _edge(start: tuple[float, float], end: tuple[float, float]) -> Markup:
    x, y = start[0] + BOX[0], start[1] + BOX[1] / 2
    to_x, to_y = end[0], end[1] + BOX[1] / 2
    middle = (x + to_x) / 2
    path = f"M{x:g} {y:g}C{middle:g} {y:g} {middle:g} {to_y:g} {to_x:g} {to_y:g}"
    return Markup('<path class="edge" d="{}"/>').format(path)


def _box(node: Node, x: float, y: float) -> Markup:
    rows = Markup("").join(
        _text(x + 10, y + 40 + 15 * number, line, "small") for number, line in enumerate(node.lines[:2])
    )
    bar = Markup('<rect class="{}" x="{}" y="{}" width="{}" height="4"/>')
    done = bar.format("fill", f"{x:g}", f"{y + BOX[1] - 4:g}", f"{BOX[0] * min(max(node.share, 0.0), 1.0):g}")
    box = Markup(
        '<g class="node {}"><title>{}</title><rect class="box" x="{}" y="{}" width="{}" height="{}" rx="6"/>{}{}{}</g>'
    ).format(
        node.style, visible("\n".join((node.title, *node.lines))), f"{x:g}", f"{y:g}", BOX[0], BOX[1],
        _text(x + 10, y + 22, node.title, "strong"), rows, done,
    )  # fmt: skip
    return Markup('<a href="{}">{}</a>').format(node.link, box) if node.link.startswith("/") else box


def _text(x: float, y: float, text: str, style: str, anchor: str = "start", most: int = _TEXT) -> Markup:
    shown = visible(text)
    short = shown if len(shown) <= most else f"{shown[: most - 1]}…"
    return Markup('<text class="{}" x="{}" y="{}" text-anchor="{}">{}</text>').format(
        style, f"{x:g}", f"{y:g}", anchor, short
    )


def columns(values: Sequence[tuple[str, float]], label: str, *, line: float | None = None, unit: str = "$") -> Markup:
    """Values over time as columns, the newest at the right; ``line`` is a limit."""
    height, wide, left = 120, 11, 46
    top = max([value for _, value in values] + ([line] if line else []) + [0.01]) * 1.1
    width = left + max(len(values), 8) * wide + 6

    def at(value: float) -> float:
        return 12 + height * (1 - value / top)

    parts: list[Markup] = []
    for value in (0.0, top / 2, top):
        rule = Markup('<path class="rule" d="M{} {:.1f}H{}"/>').format(left, at(value), width)
        parts += [rule, _text(left - 6, at(value) + 4, amount(value, unit), "small", "end")]
    for index, (name, value) in enumerate(values):
        x = left + index * wide + 2
        column = Markup('<rect class="fill" x="{}" y="{:.1f}" width="{}" height="{:.1f}"><title>{}: {}</title></rect>')
        parts.append(
            column.format(x, at(value), wide - 4, max(at(0) - at(value), 0.5), visible(name), amount(value, unit))
        )
        if index % max(len(values) // 5, 1) == 0:
            parts.append(_text(x + wide / 2 - 2, height + 28, name[5:] if len(name) == 10 else name, "small", "middle"))
    if line is not None:
        limit = Markup('<path class="limit" d="M{} {:.1f}H{}"><title>limit {}</title></path>')
        parts += [limit.format(left, at(line), width, amount(line, unit))]
        parts += [_text(width - 4, at(line) - 4, f"budget {amount(line, unit)}", "small limit", "end")]
    return _svg(width, height + 36, label, parts)


def bars(values: Sequence[tuple[str, float, float | None]], label: str, *, unit: str = "$") -> Markup:
    """(name, value, limit or None) as horizontal bars."""
    top = max([max(value, limit or 0.0) for _, value, limit in values] + [0.01])
    left, long, high = 126, 150, 26
    parts: list[Markup] = []
    for index, (name, value, limit) in enumerate(values):
        y = index * high + 4
        parts.append(_text(left - 6, y + 14, name, "small", "end", 19))
        bar = Markup('<rect class="fill" x="{}" y="{}" width="{:.1f}" height="16"><title>{}: {}</title></rect>')
        parts.append(bar.format(left, y, max(long * value / top, 1), visible(name), amount(value, unit)))
        if limit:
            mark = Markup('<path class="limit" d="M{:.1f} {}v22"><title>budget {}</title></path>')
            parts.append(mark.format(left + long * limit / top, y - 3, amount(limit, unit)))
        end = left + long * max(value, limit or 0.0) / top
        words = amount(value, unit) + (f" of {amount(limit, unit)}" if limit else "")
        parts.append(_text(end + 6, y + 13, words, "small"))
    return _svg(left + long + 90, len(values) * high + 6, label, parts)


def amount(value: float, unit: str) -> str:
    return f"{unit}{value:,.2f}" if value < 1000 else f"{unit}{value:,.0f}"
