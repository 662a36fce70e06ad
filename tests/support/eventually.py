"""Waiting in tests: for a condition with a deadline, never for a time."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, overload

T = TypeVar("T")
PATIENCE_S = 40.0
"""Far more than anything takes on a machine of its own: others' load must fail no test."""
EVERY_S = 0.02
"""Between two looks; the first ones follow each other sooner, as most things take a few milliseconds."""


@overload
async def eventually(probe: Callable[[], Awaitable[T]], *, within: float = PATIENCE_S, every: float = EVERY_S) -> T: ...


@overload
async def eventually(probe: Callable[[], T], *, within: float = PATIENCE_S, every: float = EVERY_S) -> T: ...


async def eventually(probe: Callable[[], Any], *, within: float = PATIENCE_S, every: float = EVERY_S) -> Any:
    """Return the first truthy answer of ``probe`` (plain or async); after ``within`` seconds fail and tell the last answer.

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
            raise AssertionError(f"not so within {within} s; last seen: {last!r}")
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
            raise AssertionError(f"not so within {within} s; last seen: {last!r}")
        time.sleep(pause := min(1.5 * pause, every))
