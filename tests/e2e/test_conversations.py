"""A new run of the same conversation with each agent equals the recorded one."""

import pytest

from tests.support.conversations import draw, record, stored


@pytest.mark.parametrize("agent", ["scripted", pytest.param("real", marks=[pytest.mark.real_cli, pytest.mark.full])])
async def test_a_conversation_held_anew_reads_as_recorded(agent: str) -> None:
    assert draw(await record(agent), 80) == draw(stored(agent), 80)
