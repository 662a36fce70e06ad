"""Every file that was in a worktree when a turn ended can be restored after any kill of the daemon;
see `lost_bytes`."""

import pytest

from tests.crash.lost_bytes import lost_bytes

pytestmark = pytest.mark.crash

AT_ONCE = 40
"""Rounds with one seed: after these, other sessions replace the old ones."""


@pytest.mark.parametrize(("seed", "rounds"), [pytest.param(4, 8, marks=pytest.mark.smoke), (2, 12)])
@pytest.mark.timeout(7200)
async def test_every_byte_that_was_in_a_tree_at_the_end_of_a_turn_is_found_again(
    request: pytest.FixtureRequest, seed: int, rounds: int
) -> None:
    rounds = request.config.getoption("--crash-rounds") or rounds

    for more, first in enumerate(range(0, rounds, AT_ONCE)):
        counts = await lost_bytes(min(AT_ONCE, rounds - first), seed=seed + 10 * more)
        print(vars(counts))

        assert counts.trees == counts.turns > 0
        assert counts.rewound > 0
