"""A caller that hangs up while its session's row is being stored."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rametd.domain.errors import ReadOnlyError
from rametd.services.core import Core
from rametd.services.creation.creator import Creator
from rametd.services.creation.pool import Pool
from rametd.services.hooks import SessionHooks


class SlowStore:
    """A writer that, like the real one, completes each work even if its caller no longer waits."""

    def __init__(self) -> None:
        self.begun, self.go = asyncio.Event(), asyncio.Event()

    async def write(self, work: Callable[[Any], None]) -> None:
        self.begun.set()
        await self.go.wait()
        work(None)


async def hang_up_during(work: Callable[[Any], None]) -> None:
    store = SlowStore()
    creator = Creator(
        cast(Core, SimpleNamespace(store=store, operations=SimpleNamespace(handle=lambda *kind: None))),
        cast(SessionHooks, None),
        cast(Pool, None),
    )
    storing = asyncio.create_task(creator._insert(work))
    await store.begun.wait()
    storing.cancel()
    await asyncio.sleep(0)
    store.go.set()
    await storing


async def test_a_row_that_is_stored_counts_as_stored() -> None:
    done: list[object] = []
    await hang_up_during(done.append)
    assert done == [None]


async def test_one_that_is_not_stored_is_to_be_undone() -> None:
    def refuse(unit: object) -> None:
        raise ReadOnlyError("the disk is full")

    with pytest.raises(asyncio.CancelledError):
        await hang_up_during(refuse)
