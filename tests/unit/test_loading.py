"""Effects of the daemon's quick imports."""

from dataclasses import FrozenInstanceError, dataclass, replace
from typing import Any

import pytest
from rametd import loading


def test_dataclasses_of_quick_imports_behave_like_others() -> None:
    def make() -> Any:
        @dataclass(frozen=True, slots=True, order=True)
        class Point:
            x: int
            y: int = 0

        return Point

    plain = make()
    with loading.quickly():
        quick = make()
    assert repr(quick(1)) == repr(plain(1))
    assert quick(1, 2) == quick(1, 2) != quick(2, 1)
    assert quick(1) != plain(1)
    assert hash(quick(1, 2)) == hash(plain(1, 2))
    assert sorted([quick(2), quick(1)]) == [quick(1), quick(2)]
    assert replace(quick(1), y=3).y == 3
    with pytest.raises(FrozenInstanceError):
        quick(1).x = 2
    with pytest.raises(FrozenInstanceError):
        del quick(1).x
