"""Charts and graphs of the web page, as pure functions."""

import xml.etree.ElementTree as ET
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st
from rametctl.web.svg import BOX, Node, bars, columns, graph, layers

IDS = [f"t{number}" for number in range(7)]
AFTER = st.dictionaries(st.sampled_from(IDS), st.lists(st.sampled_from([*IDS, "elsewhere"]), max_size=4))
NUMBERS = st.floats(0, 1e6)
NAME = st.text(st.sampled_from("a<&\"'\u202e\x1b "), max_size=40)


def shapes(svg: str, name: str) -> list[ET.Element]:
    """Return elements by class; parsing checks that any text is well-formed."""
    return [each for each in ET.fromstring(svg).iter() if name in each.get("class", "").split()]  # noqa: S314


@given(AFTER)
def test_a_node_is_drawn_right_of_its_predecessors(after: dict[str, list[str]]) -> None:
    found = layers(after)
    depth = {id_: column for column, ids in enumerate(found) for id_ in ids}
    assert sorted(depth) == sorted(after)
    reach = _reach(after)
    for id_, befores in after.items():
        for each in befores:
            if each in after and id_ not in reach[each]:  # no circle
                assert depth[each] < depth[id_]


def _reach(after: dict[str, list[str]]) -> dict[str, set[str]]:
    """Return all predecessors of each node, including itself if it is on a circle."""
    found = {id_: {each for each in befores if each in after} for id_, befores in after.items()}
    for _ in after:
        for id_, reached in found.items():
            found[id_] = reached.union(*(found[each] for each in reached))
    return found


@given(AFTER, NAME)
def test_boxes_of_a_graph_do_not_overlap(after: dict[str, list[str]], name: str) -> None:
    nodes = [Node(id_, name, (name, name), 0.5, "working", "/sessions/x") for id_ in after]
    boxes = [(float(each.get("x", "")), float(each.get("y", ""))) for each in shapes(graph(nodes, after, name), "box")]
    assert len(boxes) == len(after)
    for (x, y), (other_x, other_y) in combinations(boxes, 2):
        assert abs(x - other_x) >= BOX[0] or abs(y - other_y) >= BOX[1]


@given(st.lists(st.tuples(NAME, NUMBERS), min_size=1, max_size=9), st.none() | NUMBERS)
def test_columns_are_as_high_as_their_values(values: list[tuple[str, float]], line: float | None) -> None:
    found = shapes(columns(values, "costs", line=line), "fill")
    heights = [float(each.get("height", "")) for each in found]
    top = max([value for _, value in values] + [line or 0, 0.01]) * 1.1
    assert all(
        abs(height - max(120 * value / top, 0.5)) < 0.2 for height, (_, value) in zip(heights, values, strict=True)
    )
    assert len(shapes(columns(values, "costs", line=line), "limit")) == (2 if line is not None else 0)


@given(st.lists(st.tuples(NAME, NUMBERS, st.none() | NUMBERS), min_size=1, max_size=9))
def test_bars_keep_the_order_of_their_values(values: list[tuple[str, float, float | None]]) -> None:
    widths = [float(each.get("width", "")) for each in shapes(bars(values, "costs"), "fill")]
    for (width, (_, value, _)), (other, (_, more, _)) in combinations(zip(widths, values, strict=True), 2):
        assert (width - other) * (value - more) >= 0
