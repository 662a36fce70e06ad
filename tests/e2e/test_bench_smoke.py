"""The bench runs each of its groups; `make bench` has the figures."""

import pytest

from tests.bench.__main__ import GROUPS, measure
from tests.bench.figures import TINY


@pytest.mark.real_cli
@pytest.mark.parametrize("group", GROUPS)
async def test_a_group_of_the_bench_gives_its_figures(group: str) -> None:
    report = await measure([group], TINY)

    figures = report["figures"]
    assert isinstance(figures, list)
    assert {figure["group"] for figure in figures} == {group}
    exact = [figure for figure in figures if figure["unit"] in {"events", "agents"}]
    assert [figure["value"] for figure in exact] == [0] * len(exact), exact
