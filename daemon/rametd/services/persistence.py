"""Writes that must not fail because the disk is full: no caller could get the error."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from rametd.domain.errors import ReadOnlyError
from rametd.store import Store, Unit

T = TypeVar("T")

RETRY_S = 1.0


async def write_for_sure(store: Store, work: Callable[[Unit], T], *, lifecycle: bool = True) -> T:
    """`Store.write`, retried while the disk is full. Meanwhile the journals of the agents have their lines."""
    while True:
        try:
            return await store.write(work, lifecycle=lifecycle)
        except ReadOnlyError:
            await asyncio.sleep(RETRY_S)
