"""A daemon imports agents' modules later than the first calls after its start."""

import asyncio

from rametd.agents.claude.kind import Claude
from rametd.parts import warm_up


class Loaded(Claude):
    def __init__(self) -> None:
        self.loads = 0

    async def prepare(self) -> None:
        self.loads += 1


async def test_nothing_is_loaded_before_a_session_is_created() -> None:
    kind, begun = Loaded(), asyncio.Event()
    task = asyncio.create_task(warm_up(kind, begun, patience=3600))
    for _ in range(5):
        await asyncio.sleep(0)
    assert (kind.loads, task.done()) == (0, False)

    begun.set()
    await task
    assert kind.loads == 1


async def test_it_is_loaded_some_time_after_a_start_without_a_creation() -> None:
    kind = Loaded()
    await warm_up(kind, asyncio.Event(), patience=0)
    assert kind.loads == 1
