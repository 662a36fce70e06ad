"""The task that finds the targets with open entries."""

import asyncio
from typing import Any
from unittest.mock import MagicMock

import pytest
from rametd.domain.errors import RametError
from rametd.services.landing import queue
from rametd.services.landing.queue import LandingQueue

from tests.support.eventually import eventually


async def test_queues_that_were_not_readable_are_read_again_without_an_event(monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[str] = []

    async def read(work: Any) -> set[tuple[str, str]]:
        reads.append("read")
        if len(reads) == 1:
            raise RametError("the disk fails")
        return set()

    monkeypatch.setattr(queue, "SHORTEST_REST_S", 0.01)
    core = MagicMock()
    core.store.read = read
    landing = LandingQueue(core, MagicMock(), MagicMock())
    landing._news.set()
    task = asyncio.create_task(landing._run())
    await eventually(lambda: len(reads) == 2)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
