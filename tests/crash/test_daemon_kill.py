"""Kill the daemon at random moments while its agents stream; see `daemon_kill`."""

import pytest

from tests.crash.daemon_kill import daemon_kill

pytestmark = pytest.mark.crash


@pytest.mark.parametrize(
    ("seed", "rounds", "sessions"), [pytest.param(1, 3, 5, marks=pytest.mark.smoke), pytest.param(2, 8, 12)]
)
@pytest.mark.timeout(3600)
async def test_nothing_is_lost_or_doubled_when_the_daemon_is_killed_under_its_agents(
    request: pytest.FixtureRequest, seed: int, rounds: int, sessions: int
) -> None:
    rounds = request.config.getoption("--crash-rounds") or rounds

    counts = await daemon_kill(rounds, sessions=sessions, seed=seed)

    assert counts.rounds == rounds
    assert counts.events > 0
    print(counts)
