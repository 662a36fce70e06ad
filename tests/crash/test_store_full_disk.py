"""A disk that is really full, and then has room again."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from rametd.domain.errors import ReadOnlyError
from rametd.domain.models import NewEvent
from rametd.store import Store
from rametd.store.writer import Pace

from tests.support.eventually import eventually

pytestmark = pytest.mark.crash

SIZE = 4 << 20
LARGE = b"x" * 100_000


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A file system of 4 MB; mounting one takes root."""
    directory = Path(tempfile.mkdtemp(prefix="rmt-"))
    try:
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "none", str(directory)],
            capture_output=True,
            text=True,
            check=False,
        )
        if mounted.returncode:
            pytest.skip(f"cannot mount a small disk here: {mounted.stderr.strip()}")
        try:
            yield directory
        finally:
            subprocess.run(["umount", str(directory)], check=True)
    finally:
        directory.rmdir()


def fill(path: Path) -> None:
    """Take all the room that is left."""
    with path.open("wb", buffering=0) as file:
        for size in (65536, 4096, 1):
            try:
                while True:
                    os.write(file.fileno(), bytes(size))
            except OSError:
                continue


@pytest.mark.smoke
async def test_it_is_read_only_while_full_and_recovers_by_itself(small_disk: Path) -> None:
    store = await Store.open(small_disk / "ramet.db", pace=Pace(batch=0.0, retry=0.05))
    reports: list[bool] = []
    store.on_read_only = reports.append
    filler = small_disk / "filler"
    acknowledged: list[int] = []

    async def write_until_full() -> None:
        while True:
            lifecycle = len(acknowledged) % 2 == 0
            (event,) = await store.write(
                lambda unit: unit.events.append(NewEvent("large", payload=LARGE)), lifecycle=lifecycle
            )
            acknowledged.append(event.seq)

    for _ in range(3):
        fill(filler)
        with pytest.raises(ReadOnlyError):
            await write_until_full()
        assert store.read_only
        stored = await store.read(lambda reader: [event.seq for event in reader.events.list()])
        assert stored == acknowledged

        filler.unlink()
        await eventually(lambda: not store.read_only)
        assert reports == [True, False]
        reports.clear()
        (event,) = await store.write(lambda unit: unit.events.append(NewEvent("room")))
        acknowledged.append(event.seq)
    await store.aclose()

    again = await Store.open(small_disk / "ramet.db")
    assert again.rebuilt is None
    events = await again.read(lambda reader: reader.events.list())
    assert [event.seq for event in events] == acknowledged == list(range(1, len(acknowledged) + 1))
    assert all(event.payload == LARGE for event in events if event.kind == "large")
    await again.aclose()
