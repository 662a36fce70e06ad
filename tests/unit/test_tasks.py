"""Background tasks of a service."""

import asyncio
import inspect

from rametd.services.tasks import Tasks

from tests.support.eventually import eventually


async def fail() -> None:
    raise ValueError("broken")


async def test_a_failure_is_reported_by_its_key_and_forgotten() -> None:
    failed: list[str] = []
    tasks = Tasks("test", failed.append)
    tasks.start("one", fail())
    assert "one" in tasks
    await eventually(lambda: failed == ["one"])
    assert len(tasks) == 0


async def test_queued_work_runs_in_order_also_after_a_failure() -> None:
    done: list[int] = []
    gate = asyncio.Event()

    async def work(number: int) -> None:
        await gate.wait()
        done.append(number)

    tasks = Tasks("test")
    tasks.queue("one", work(1))
    tasks.queue("one", fail())
    tasks.queue("one", work(2))
    gate.set()
    await tasks.wait("one")
    assert done == [1, 2]


async def test_cancelling_queued_work_ends_what_it_waits_for() -> None:
    ended: list[str] = []

    async def work(name: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(name)

    tasks = Tasks("test")
    tasks.start("one", work("first"))
    tasks.queue("one", work("second"))
    queued = tasks.get("one")
    assert queued is not None
    await asyncio.sleep(0)
    queued.cancel()
    await asyncio.wait([queued])
    assert (ended, len(tasks)) == (["first"], 0)


async def test_a_task_that_waits_for_its_own_key_does_not_wait_for_itself() -> None:
    tasks = Tasks("test")
    tasks.start("one", tasks.wait("one"))
    async with asyncio.timeout(5):
        await tasks.wait("one")


async def test_close_ends_newer_and_older_tasks_of_a_key_and_reports_no_failure() -> None:
    failed: list[str] = []
    ended: list[int] = []

    async def work(number: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(number)

    tasks = Tasks("test", failed.append)
    tasks.start("one", work(1))
    tasks.start("one", work(2))
    await asyncio.sleep(0)
    await tasks.close()
    assert (sorted(ended), failed, len(tasks)) == ([1, 2], [], 0)


async def test_queued_work_cancelled_before_its_first_step_ends_the_earlier_too() -> None:
    ended: list[str] = []

    async def work(name: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(name)

    tasks = Tasks("test")
    tasks.start("one", work("first"))
    await asyncio.sleep(0)
    later = work("second")
    tasks.queue("one", later)
    queued = tasks.get("one")
    assert queued is not None
    queued.cancel()
    await eventually(lambda: not tasks.running)
    assert (ended, inspect.getcoroutinestate(later)) == (["first"], inspect.CORO_CLOSED)
