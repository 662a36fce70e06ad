"""Threads for blocking calls: every call gets its own answer, whatever becomes of its caller."""

import asyncio
import threading
from functools import partial

import pytest
from rametd.platform.threads import Threads


async def test_each_call_gets_its_result_or_its_error() -> None:
    threads = Threads(3, "tried")

    def work(number: int) -> int:
        if number % 5 == 0:
            raise KeyError(number)
        return number

    answers = [threads.call(partial(work, number)) for number in range(200)]
    found = await asyncio.gather(*answers, return_exceptions=True)
    threads.close()

    assert [each if isinstance(each, int) else each.args[0] for each in found] == list(range(200))
    assert [isinstance(each, KeyError) for each in found] == [number % 5 == 0 for number in range(200)]


async def test_calls_run_in_order_and_no_more_at_once_than_there_are_threads() -> None:
    one = Threads(1, "tried")
    seen: list[int] = []
    await asyncio.gather(*(one.call(partial(seen.append, number)) for number in range(50)))
    assert seen == list(range(50))

    held, names = threading.Event(), set[str]()

    def hold() -> None:
        names.add(threading.current_thread().name)
        held.wait()

    two = Threads(2, "tried")
    answers = [two.call(hold) for _ in range(8)]
    held.set()
    await asyncio.gather(*answers)
    assert names <= {"tried_0", "tried_1"}
    for threads in (one, two):
        threads.close()


async def test_a_cancelled_caller_affects_no_other_call() -> None:
    threads = Threads(1, "tried")
    held, done = threading.Event(), threading.Event()

    def work() -> None:
        held.wait()
        done.set()

    left, follows = threads.call(work), threads.call(done.is_set)
    left.cancel()
    held.set()

    assert await follows
    threads.close()
    with pytest.raises(RuntimeError, match="have ended"):
        threads.call(done.is_set)
