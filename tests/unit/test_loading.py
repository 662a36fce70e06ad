"""Effects of the daemon's quick imports."""

import dataclasses
from dataclasses import FrozenInstanceError, dataclass, field, replace
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


def test_methods_of_quick_dataclasses_are_compiled_once_in_the_class_that_has_them() -> None:
    with loading.quickly():

        @dataclass
        class Base:
            x: int
            found: list[int] = field(default_factory=list)

        @dataclass(kw_only=True)
        class Further(Base):
            y: str = "y"

            def __post_init__(self) -> None:
                self.found.append(self.x)

    assert repr(Further(1, y="z")) == repr(Further(x=1, y="z"))  # the first one compiles, the second one does not
    assert Base(2).found == [] != Further(2).found == [2]
    assert Base.__init__.__code__.co_varnames[:3] == ("self", "x", "found")
    assert Further.__init__.__qualname__.endswith("Further.__init__")
    assert Base(1) != Further(1)
    with pytest.raises(TypeError, match=r"__init__\(\) missing 1 required positional argument: 'x'"):
        Base()  # type: ignore[call-arg]


@pytest.mark.skipif(not hasattr(dataclasses, "_create_fn"), reason="Python 3.13 compiles a class's methods together")
def test_a_method_that_dataclasses_wraps_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """``__repr__`` is wrapped, so that the compiled method cannot take its place in the class."""
    compiled: list[str] = []
    create = vars(dataclasses)["_create_fn"]

    def counting(name: str, *arguments: Any, **options: Any) -> Any:
        compiled.append(name)
        return create(name, *arguments, **options)

    monkeypatch.setattr(dataclasses, "_create_fn", counting)
    with loading.quickly():

        @dataclass
        class Point:
            x: int

    assert {repr(Point(1)) for _ in range(3)} == {repr(Point(1))}
    assert compiled.count("__repr__") == 1
