"""How often something may be done: the one limiter for what sessions do beyond messages and spawns, which the store counts."""

from collections import deque
from collections.abc import Hashable

MINUTE = 60.0
_MOST_KEYS = 10_000  # beyond them the oldest are forgotten


class Rates:
    """Counts in memory: a new daemon begins anew."""

    def __init__(self) -> None:
        self._taken: dict[Hashable, deque[float]] = {}

    def take(self, key: Hashable, most: int, now: float) -> bool:
        """Count one more at ``now`` (seconds), unless ``most`` were counted within the last minute; then False."""
        taken = self._taken.pop(key, None) or deque()
        while taken and taken[0] <= now - MINUTE:
            taken.popleft()
        self._taken[key] = taken
        while len(self._taken) > _MOST_KEYS:
            del self._taken[next(iter(self._taken))]
        if len(taken) >= most:
            return False
        taken.append(now)
        return True
