"""Kill a writing process at random times: every acknowledged write is there."""

import random
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from rametd.domain.models import NewEvent
from rametd.store import Reader, Store

pytestmark = pytest.mark.crash

WRITER = """
import asyncio, sys
from pathlib import Path
from rametd.domain.models import NewEvent
from rametd.store import Store
from rametd.store.writer import Pace

async def write(store, round_, name, lifecycle):
    for number in range(1_000_000):
        key = f"{round_}.{name}.{number}"
        def work(unit):
            unit.events.append(NewEvent("half", frame=key.encode()), NewEvent("whole", frame=key.encode()))
            unit.calls.put(key, "method", b"", b"")
        await store.write(work, lifecycle=lifecycle)
        print(key, flush=True)

async def main(path, round_):
    store = await Store.open(Path(path), pace=Pace(batch=0.002))
    await store.begin_run("instance", 1, "0.1.0")
    await asyncio.gather(*(write(store, round_, name, name % 2 == 0) for name in range(4)))

asyncio.run(main(*sys.argv[1:]))
"""


def run_and_kill(path: Path, round_: int, lines: int) -> list[str]:
    """Return the keys that a writer acknowledged until it was killed, some time after ``count`` of
    them."""
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), str(round_)], stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        keys = [writer.stdout.readline().strip() for _ in range(lines)]
        writer.kill()
        # The last line may be truncated; its key is then another write's or none's.
        keys += [line.strip() for line in writer.stdout if line.endswith("\n")]
        assert writer.wait() == -signal.SIGKILL
    return keys


def check(acknowledged: list[str], at_least: int, reader: Reader) -> int:
    events = reader.events.list(limit=10_000_000)
    assert [event.seq for event in events] == list(range(1, len(events) + 1)), "a gap or a double in the log"
    halves = [event.frame for event in events if event.kind == "half"]
    wholes = [event.frame for event in events if event.kind == "whole"]
    assert halves == wholes, "a unit of work was half done"
    assert len(set(wholes)) == len(wholes), "a unit of work was done twice"
    missing = {key.encode() for key in acknowledged} - set(wholes)
    assert not missing, "acknowledged and lost"
    assert all(reader.calls.get(key) for key in acknowledged)
    assert len(events) >= at_least
    return len(events)


@pytest.mark.smoke
async def test_every_acknowledged_write_survives_kills(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    path = tmp_path / "ramet.db"
    chance = random.Random(7)  # noqa: S311 - where to kill, not a secret
    acknowledged: list[str] = []
    count = 0
    epochs = set()
    for round_ in range(request.config.getoption("--crash-rounds") or 6):
        acknowledged.extend(run_and_kill(path, round_, chance.randrange(1, 60)))
        store = await Store.open(path)
        assert store.rebuilt is None
        epochs.add(store.epoch)
        count = await store.read(partial(check, acknowledged, count))
        await store.write(lambda unit: unit.events.append(NewEvent("between")))
        await store.aclose()
    assert len(epochs) == 1
