"""The bench's gate: which figures fail, and the command in its message."""

import json
from collections.abc import AsyncIterator

import pytest

from tests.bench import gate
from tests.bench.gate import BASELINE, PROFILES, ROUNDS, Ratio, complaint, judge, worse


def rounds(monkeypatch: pytest.MonkeyPatch, *values: float) -> list[float]:
    """Let the gate measure these values, one a round; return the unused ones."""
    left = list(values)

    async def measure() -> AsyncIterator[Ratio]:
        yield Ratio("event of an agent", left.pop(0), "a row")

    monkeypatch.setattr(gate, "measure", measure)
    return left


BEFORE = {"event of an agent": 10.0}


async def test_one_good_round_passes_whatever_the_rounds_before_it_were(monkeypatch: pytest.MonkeyPatch) -> None:
    left = rounds(monkeypatch, 40.0, 14.9, 99.0)
    assert worse(await judge(BEFORE), BEFORE) == []
    assert left == [99.0], "no round follows a good one"


async def test_a_figure_worse_by_half_in_each_round_fails_with_the_profile_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rounds(monkeypatch, *[15.1] * ROUNDS)
    (back,) = worse(await judge(BEFORE), BEFORE)
    assert "py-spy record" in complaint(back, 10.0)
    assert "15.10" in complaint(back, 10.0)


def test_each_stored_figure_has_a_command_that_profiles_it() -> None:
    assert {name.split()[0] for name in json.loads(BASELINE.read_text())} == set(PROFILES)
