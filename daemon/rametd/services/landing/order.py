"""In which order work is best landed: the one that meets the fewest conflicts."""

from collections.abc import Collection, Mapping, Sequence

EXACT = 22
"""Up to this many that conflict with any other, the best order is found; beyond it a good one."""


def landing_order(
    sessions: Sequence[str], red: Collection[frozenset[str]], before: Mapping[str, Collection[str]] | None = None
) -> tuple[list[str], int]:
    """Return the sessions in order, and how many of them will meet a conflict with one that landed earlier.

    ``red`` are the pairs that do not merge, ``before`` the sessions that must land before each. As many as do not conflict among each other go
    first: each of the others conflicts with one of those whatever the order, so that no order meets fewer.
    """
    neighbours = {each: {other for pair in red if each in pair for other in pair if other != each} for each in sessions}
    first = _independent({each: others & neighbours.keys() for each, others in neighbours.items()})
    earlier = before or {}
    left = list(sessions)
    order: list[str] = []
    while left:
        ready = [each for each in left if not any(other in left for other in earlier.get(each, ()))]
        # A circle is refused where it is made; should one be met, its members land as they stand.
        chosen = min(ready or left, key=lambda each: (each not in first, len(neighbours[each]), left.index(each)))
        left.remove(chosen)
        order.append(chosen)
    conflicts = sum(1 for place, each in enumerate(order) if neighbours[each] & set(order[:place]))
    return order, conflicts


def _independent(neighbours: Mapping[str, set[str]]) -> set[str]:
    """As many as possible of which no two are neighbours."""
    alone = {each for each, others in neighbours.items() if not others}
    rest = [each for each in neighbours if each not in alone]
    if len(rest) <= EXACT:
        return alone | _largest(rest, neighbours)
    chosen: set[str] = set()
    for each in sorted(rest, key=lambda each: len(neighbours[each])):
        if not neighbours[each] & chosen:
            chosen.add(each)
    return alone | chosen


def _largest(rest: Sequence[str], neighbours: Mapping[str, set[str]]) -> set[str]:
    """By branching on the one with the most neighbours: with it, or without it."""

    def search(candidates: frozenset[str]) -> frozenset[str]:
        if not candidates:
            return frozenset()
        busiest = max(sorted(candidates), key=lambda each: len(neighbours[each] & candidates))
        if not neighbours[busiest] & candidates:
            return candidates
        without = search(candidates - {busiest})
        with_it = search(candidates - {busiest} - neighbours[busiest]) | {busiest}
        return with_it if len(with_it) > len(without) else without

    return set(search(frozenset(rest)))
