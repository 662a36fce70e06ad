"""The order of landing with the fewest conflicts."""

from itertools import combinations, permutations

from hypothesis import given
from hypothesis import strategies as st
from rametd.services.radar.radar import landing_order

NAMES = "abcdef"
edges = st.sets(st.sampled_from([frozenset(pair) for pair in combinations(NAMES, 2)]))


def met(order: tuple[str, ...], red: set[frozenset[str]]) -> int:
    return sum(any(frozenset((one, other)) in red for other in order[:place]) for place, one in enumerate(order))


@given(edges)
def test_no_other_order_has_fewer_conflicts(red: set[frozenset[str]]) -> None:
    order, conflicts = landing_order(NAMES, red)
    assert sorted(order) == sorted(NAMES)
    assert conflicts == met(tuple(order), red) == min(met(each, red) for each in permutations(NAMES))


@given(edges, st.permutations(NAMES))
def test_what_must_go_before_goes_before(red: set[frozenset[str]], chain: list[str]) -> None:
    before = {chain[1]: [chain[0]], chain[2]: [chain[1], "gone"]}
    order, _ = landing_order(NAMES, red, before)
    assert order.index(chain[0]) < order.index(chain[1]) < order.index(chain[2])


def test_a_hundred_that_all_conflict_are_put_in_order_at_once() -> None:
    names = [f"s{number}" for number in range(100)]
    order, conflicts = landing_order(names, [frozenset(pair) for pair in combinations(names, 2)])
    assert (len(order), conflicts) == (100, 99)
