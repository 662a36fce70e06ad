"""Wait in tests for a condition with a deadline, never for a fixed time."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, overload

T = TypeVar("T")
PATIENCE_S = 40.0
"""Seconds; far more than anything takes on an idle machine, as load must not fail a test."""
EVERY_S = 0.02
"""Seconds between two probes; the first ones follow faster, as most things take a few
milliseconds."""


@overload
async def eventually(probe: Callable[[], Awaitable[T]], *, within: float = PATIENCE_S, every: float = EVERY_S) -> T: ...


@overload
async def eventually(probe: Callable[[], T], *, within: float = PATIENCE_S, every: float = EVERY_S) -> T: ...


async def eventually(probe: Callable[[], Any], *, within: float = PATIENCE_S, every: float = EVERY_S) -> Any:
    """Return the first truthy answer of ``probe`` (plain or async); after ``within`` seconds fail
    with the last answer.

    An ``AssertionError`` raised by the probe counts as "not yet".
    """
    deadline, pause = time.monotonic() + within, every / 10
    last: object = None
    while True:
        try:
            answer = probe()
            if isinstance(answer, Awaitable):
                answer = await answer
            if answer:
                return answer
            last = answer
        except AssertionError as error:
            last = error
        if time.monotonic() > deadline:
            raise AssertionError(f"not true within {within} s; last answer: {last!r}")
        await asyncio.sleep(pause := min(1.5 * pause, every))


def eventually_sync(probe: Callable[[], T], *, within: float = PATIENCE_S, every: float = EVERY_S) -> T:
    """`eventually` for tests without an event loop."""
    deadline, pause = time.monotonic() + within, every / 10
    last: object = None
    while True:
        try:
            last = probe()
            if last:
                return last
        except AssertionError as error:
            last = error
        if time.monotonic() > deadline:
            raise AssertionError(f"not true within {within} s; last answer: {last!r}")
        time.sleep(pause := min(1.5 * pause, every))
