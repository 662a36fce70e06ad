"""Conversations that were recorded from the real CLI and from the scripted agent, as rendered."""

import os

import pytest

from tests.support.conversations import AGENTS, GOLDEN, WIDTHS, draw, picture, stored


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("agent", AGENTS)
def test_a_recorded_conversation_is_drawn_as_recorded(agent: str, width: int) -> None:
    if os.environ.get("RAMET_UPDATE_GOLDEN"):
        picture(agent)
    assert draw(stored(agent), width) == (GOLDEN / f"{agent}-{width}.txt").read_text()


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize("folded", [True, False])
def test_no_line_of_a_conversation_is_wider_than_the_screen_or_written_for_programs(agent: str, folded: bool) -> None:
    for width in (20, 40, 80):
        shown = draw(stored(agent), width, folded=folded)
        assert all(len(each) <= max(width, 40) for each in shown.splitlines())
        assert "tool_use_error" not in shown
        assert "/tree/" not in shown
        assert "[ede_diagnostic]" not in shown
