"""Warm agents that cannot be ended at once."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rametd.domain.errors import NotFoundError, RametError
from rametd.keeper.executor import Handle
from rametd.keeper.place import Place
from rametd.services.agents.warm import AGAIN_S, Warmer
from rametd.services.agents.warm_process import GENERATION
from rametd.services.core import Core
from rametd.services.hooks import AgentTools

from tests.support.eventually import eventually

HANDLE = Place(Path("/nowhere"), "spare", GENERATION).handle


class StubbornExecutor:
    """Refuses to end a process ``refusals`` times."""

    def __init__(self, refusals: int, gone: bool = False) -> None:
        self.refusals, self.gone = refusals, gone
        self.ends, self.destroyed = 0, list[Handle]()

    def discover(self) -> list[Handle]:
        return [HANDLE]

    async def end(self, handle: Handle, grace: float, *, epoch: int) -> None:
        self.ends += 1
        if self.gone:
            raise NotFoundError("no such process")
        if self.ends <= self.refusals:
            raise RametError("its keeper does not answer")

    async def destroy(self, handle: Handle) -> None:
        self.destroyed.append(handle)


class NoSessions:
    async def read(self, work: Callable[[Any], Any]) -> Any:
        return work(SimpleNamespace(agents=SimpleNamespace(has_handle=lambda session_id, handle: False)))


def warmer_of(executor: StubbornExecutor) -> tuple[Warmer, list[float]]:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        await asyncio.sleep(0)

    core = SimpleNamespace(executor=executor, store=NoSessions(), fence=1)
    return Warmer(cast(Core, core), AgentTools(), sleep=sleep), pauses


@pytest.mark.parametrize("refusals", [0, 1, len(AGAIN_S)])
async def test_one_that_withstands_is_ended_again_after_longer_and_longer_pauses(refusals: int) -> None:
    executor = StubbornExecutor(refusals)
    warmer, pauses = warmer_of(executor)
    await warmer.recover()
    await eventually(lambda: executor.destroyed == [HANDLE])
    assert pauses == list(AGAIN_S[:refusals])
    assert executor.ends == refusals + 1
    await warmer.stop()


async def test_one_that_withstands_every_time_is_left_to_the_next_start() -> None:
    executor = StubbornExecutor(1000)
    warmer, pauses = warmer_of(executor)
    await warmer.recover()
    await eventually(lambda: executor.ends == len(AGAIN_S) + 1 and not warmer._retries)
    assert pauses == list(AGAIN_S)
    await warmer.stop()


async def test_waiters_do_not_wait_for_retries_and_a_stop_ends_retries() -> None:
    executor = StubbornExecutor(1000)
    warmer, _ = warmer_of(executor)
    warmer.sleep = asyncio.sleep
    await warmer.recover()
    await asyncio.wait_for(warmer.end("spare"), 0.5)
    assert executor.ends == 1
    await asyncio.wait_for(warmer.stop(), 0.5)
    assert not warmer._retries


async def test_one_that_has_gone_by_itself_is_not_tried_again() -> None:
    executor = StubbornExecutor(0, gone=True)
    warmer, pauses = warmer_of(executor)
    await warmer.recover()
    await warmer.end("spare")
    assert (executor.ends, pauses) == (1, [])


async def test_a_stop_waits_for_an_earlier_ending_of_the_same_spare() -> None:
    warmer, _ = warmer_of(StubbornExecutor(0))
    gate, ended = asyncio.Event(), list[str]()

    async def end_slowly() -> None:
        await gate.wait()
        ended.append("earlier")

    async def end_at_once() -> None:
        ended.append("newest")

    warmer._begin_ending("spare", end_slowly())
    warmer._begin_ending("spare", end_at_once())
    stop = asyncio.create_task(warmer.stop())
    await eventually(lambda: ended == ["newest"])
    for _ in range(10):  # rounds of the loop in which a stop that does not wait would end
        await asyncio.sleep(0)
    assert not stop.done()
    gate.set()
    await stop
    assert ended == ["newest", "earlier"]
