"""Whatever is done to sessions, and whenever the daemon is killed, every tree that was there at the end of a turn is found again; see `lost_bytes`."""

import pytest

from tests.crash.lost_bytes import lost_bytes

pytestmark = pytest.mark.crash

AT_ONCE = 40
"""Rounds with one seed: sessions that have lived long enough make place for others."""


@pytest.mark.timeout(7200)
async def test_every_byte_that_was_in_a_tree_at_the_end_of_a_turn_is_found_again(
    request: pytest.FixtureRequest,
) -> None:
    rounds = 2 * request.config.getoption("--crash-rounds")

    for seed, first in enumerate(range(0, rounds, AT_ONCE), 1):
        counts = await lost_bytes(min(AT_ONCE, rounds - first), seed=seed)
        print(vars(counts))

        assert counts.trees == counts.turns > 0
        assert counts.rewound > 0
