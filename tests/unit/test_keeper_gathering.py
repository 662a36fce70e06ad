"""Readers of many connections are woken together under load, and at once after a pause."""

import asyncio

import pytest
from rametd.keeper import connection
from rametd.keeper.connection import Gatherer


async def test_readers_are_woken_at_once_after_a_pause_and_together_under_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "GATHER", 3600.0)
    loop = asyncio.get_running_loop()
    gatherer = Gatherer()
    first, second, third = (loop.create_future() for _ in range(3))
    for reader in (first, second, third):
        gatherer.wake(reader)
    assert [reader.done() for reader in (first, second, third)] == [True, False, False]
    gatherer._wake_all(loop)
    assert second.done()
    assert third.done()


async def test_a_cancelled_reader_holds_up_no_other() -> None:
    loop = asyncio.get_running_loop()
    gatherer = Gatherer()
    woken, cancelled, waiting = (loop.create_future() for _ in range(3))
    gatherer.wake(woken)
    gatherer.wake(cancelled)
    gatherer.wake(waiting)
    cancelled.cancel()
    await waiting
    assert woken.done()


async def test_connections_of_one_loop_share_a_gatherer() -> None:
    loop = asyncio.get_running_loop()
    assert Gatherer.of(loop) is Gatherer.of(loop)
