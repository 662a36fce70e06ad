"""Drawing a view until Ctrl-C."""

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest
from ramet.paths import directories
from rametctl.connection.link import Link
from rametctl.view.live import paint_changes
from rametctl.view.model import View


@pytest.mark.parametrize("steps", range(6))
async def test_a_cancellation_during_a_change_ends_the_painter(tmp_path: Path, steps: int) -> None:
    environ = {"HOME": str(tmp_path)}
    view = View(Link(directories(environ), environ, autostart=False))
    view.ready.set()
    painted = asyncio.Event()

    async def paint(view: View) -> None:
        painted.set()

    task = asyncio.create_task(paint_changes(view, paint, every=0, tick=3600))
    await painted.wait()
    for _ in range(5):
        await asyncio.sleep(0)  # it waits for a change now
    view.changed.set()
    for _ in range(steps):
        await asyncio.sleep(0)
    task.cancel()
    try:
        await asyncio.wait([task], timeout=5)
        assert task.cancelled()
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
