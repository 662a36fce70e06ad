"""The daemon is killed at random moments while twenty agents stream; see `daemon_kill`."""

import pytest

from tests.crash.daemon_kill import daemon_kill

pytestmark = pytest.mark.crash


@pytest.mark.timeout(3600)
async def test_nothing_is_lost_or_doubled_when_the_daemon_is_killed_under_twenty_agents(
    request: pytest.FixtureRequest,
) -> None:
    rounds = request.config.getoption("--crash-rounds")

    counts = await daemon_kill(rounds)

    assert counts.rounds == rounds
    assert counts.events > 0
    print(counts)
