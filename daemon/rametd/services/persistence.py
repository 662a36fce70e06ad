"""Writing what must not be given up: work that nobody waits for who could be told that the disk is full."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from rametd.domain.errors import ReadOnlyError
from rametd.store import Store, Unit

T = TypeVar("T")

RETRY_S = 1.0


async def write_for_sure(store: Store, work: Callable[[Unit], T], *, lifecycle: bool = True) -> T:
    """`Store.write`, again and again while the disk is full. The agents' journals hold what is not yet stored."""
    while True:
        try:
            return await store.write(work, lifecycle=lifecycle)
        except ReadOnlyError:
            await asyncio.sleep(RETRY_S)
