"""The bench measures something in each of its groups; how fast is for `make bench` to say."""

import pytest

from tests.bench.__main__ import GROUPS, measure
from tests.bench.figures import TINY


@pytest.mark.real_cli
async def test_each_group_of_the_bench_gives_its_figures() -> None:
    report = await measure(list(GROUPS), TINY)

    figures = report["figures"]
    assert isinstance(figures, list)
    assert {figure["group"] for figure in figures} == set(GROUPS)
    exact = [figure for figure in figures if figure["unit"] in {"events", "agents"}]
    assert [figure["value"] for figure in exact] == [0] * len(exact), exact
