"""Which checkpoints a session goes on from, after rewinds."""

from hypothesis import given
from hypothesis import strategies as st
from rametd.domain.checkpoints import line_of


def test_without_a_rewind_all_of_them_are_one_line() -> None:
    assert line_of(3, []) == [3, 2, 1]


def test_a_rewind_leaves_behind_what_it_went_back_over() -> None:
    assert line_of(4, [(4, 2)]) == [2, 1]
    assert line_of(6, [(4, 2)]) == [6, 5, 2, 1]


def test_a_rewind_to_what_was_left_behind_makes_that_the_line_again() -> None:
    assert line_of(5, [(4, 2), (5, 4)]) == [4, 3, 2, 1]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 100))))
def test_the_line_is_the_one_that_a_tree_of_checkpoints_gives(steps: list[tuple[int, int]]) -> None:
    parents: dict[int, int] = {1: 0}
    stands, rewinds = 1, []
    for made, wanted in steps:
        for _ in range(made):
            number = len(parents) + 1
            parents[number] = stands
            stands = number
        stands = wanted % len(parents) + 1
        rewinds.append((len(parents), stands))
    expected = []
    while stands:
        expected.append(stands)
        stands = parents[stands]
    assert line_of(len(parents), rewinds) == expected
