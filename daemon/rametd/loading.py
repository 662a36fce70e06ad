"""Import modules faster: saves a third of the daemon's start time."""

import dataclasses
import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, cast

COLLECT = (2_000, 10, 10)
"""Thresholds of the garbage collector. Starting a session leaves a third of a megabyte of cyclic
garbage. With (20,000, 20, 20) it stayed, and a live session took 0.69 MB of the daemon instead of
0.32. Objects from imports are frozen, so the processor time per event of an agent is the same with
both."""


@contextmanager
def quickly() -> Iterator[None]:
    """Import modules within the block, without garbage collection: imports create many objects and
    free few.

    Afterwards the living objects, which stay for good, are hidden from the collector: with the SDK
    loaded, each full collection would stop the loop for 60 ms. Rich is hidden from imports:
    structlog would import it to format exceptions in a way that `logs` never uses.
    """
    hidden = "rich" not in sys.modules
    if hidden:
        sys.modules["rich"] = cast("ModuleType", None)  # makes its import fail
    gc.disable()
    try:
        with _sparing_dataclasses():
            yield
    finally:
        gc.enable()
        gc.freeze()
        gc.set_threshold(*COLLECT)
        if hidden:
            del sys.modules["rich"]


@contextmanager
def _sparing_dataclasses() -> Iterator[None]:
    """Compile each method of a dataclass when it is first called.

    Up to Python 3.12, `dataclasses` compiles six methods of each class one by one, which takes 40 %
    of all imports, and a start uses a third of the classes. From 3.13 on it compiles them together.
    """
    create: Callable[..., Any] | None = vars(dataclasses).get("_create_fn")
    if create is None:
        yield
        return

    def spare(name: str, *arguments: Any, **options: Any) -> Any:
        compiled: Callable[..., Any] | None = None

        def method(*values: Any, **named: Any) -> Any:
            nonlocal compiled
            if compiled is None:  # else `dataclasses` wraps it, as it does `__repr__`, and calls it through the wrapper
                compiled = create(name, *arguments, **options)
                compiled.__qualname__ = method.__qualname__
            for owner in type(values[0]).__mro__:
                if vars(owner).get(name) is method:
                    setattr(owner, name, compiled)
            return compiled(*values, **named)

        method.__name__ = method.__qualname__ = name
        return method

    setattr(dataclasses, "_create_fn", spare)  # noqa: B010 - the type checker does not know the private name
    try:
        yield
    finally:
        setattr(dataclasses, "_create_fn", create)  # noqa: B010 - as above
