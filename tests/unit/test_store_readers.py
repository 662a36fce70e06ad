"""Reads of the store: each caller gets its own answer or error, whatever happens to the others."""

import asyncio
from pathlib import Path

import pytest
from rametd.domain.errors import UnavailableError
from rametd.store import Reader, Store


async def test_each_read_gets_its_own_answer_or_error_beside_cancelled_ones(tmp_path: Path) -> None:
    store = await Store.open(tmp_path / "ramet.db")

    def work(number: int, reader: Reader) -> int:
        if number % 5 == 1:
            raise LookupError(number)
        return number + reader.events.last_seq()

    reads = [
        asyncio.ensure_future(store.read(lambda reader, number=number: work(number, reader)))  # type: ignore[misc]
        for number in range(500)
    ]
    for place, read in enumerate(reads):
        await asyncio.sleep(0)
        if place % 7 == 0:
            read.cancel()
    answers = await asyncio.gather(*reads, return_exceptions=True)
    for number, answer in enumerate(answers):
        if isinstance(answer, LookupError):
            assert number % 5 == 1
            assert answer.args == (number,)
        else:
            assert answer == number or isinstance(answer, asyncio.CancelledError)
            assert number % 7 == 0 or answer == number
    await store.aclose()


async def test_a_closing_store_answers_its_reads_and_refuses_later_ones(tmp_path: Path) -> None:
    store = await Store.open(tmp_path / "ramet.db")
    reads = [asyncio.ensure_future(store.read(lambda reader: reader.events.last_seq())) for _ in range(50)]
    await asyncio.sleep(0)
    closing = asyncio.ensure_future(store.aclose())
    await asyncio.sleep(0)
    with pytest.raises(UnavailableError):
        await store.read(lambda reader: reader.events.last_seq())
    assert await asyncio.gather(*reads) == [0] * 50
    await closing
