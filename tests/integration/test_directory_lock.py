"""The lock on a directory while another process shares its holder's descriptors."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from rametd.platform import locks
from rametd.platform.locks import DirectoryLock, HeldError

pytestmark = pytest.mark.full

NAME = "daemon.lock"


def acquire(path: Path) -> DirectoryLock:
    return DirectoryLock.acquire(path, os.open(path, os.O_RDONLY | os.O_DIRECTORY), NAME, variable="RAMET_HOME")


HOLDER = f"""
import os, signal, sys
from rametd.platform.locks import DirectoryLock
path = sys.argv[1]
lock = DirectoryLock.acquire(path, os.open(path, os.O_RDONLY | os.O_DIRECTORY), {NAME!r}, variable="RAMET_HOME")
lock.write({{"pid": os.getpid()}})
if child := os.fork():
    print(child, flush=True)
    signal.pause()
os.read(0, 1)
os.execvp("sleep", ["sleep", "60"])
"""


@pytest.fixture
def copy(tmp_path: Path) -> Iterator[int]:
    """Yield a pipe that continues a child of a killed lock holder, which is between fork and
    exec."""
    come, go = os.pipe()
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdin=come, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        child = int(holder.stdout.readline())
        holder.kill()
    os.close(come)
    yield go
    os.close(go)
    os.kill(child, signal.SIGKILL)


def test_a_start_waits_for_the_copies_that_a_killed_holder_left(
    copy: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    real = time.sleep

    def sleep(seconds: float) -> None:
        if not waits:
            os.write(copy, b"x")  # the program begins, and its descriptors are closed
        waits.append(seconds)
        real(seconds)

    monkeypatch.setattr(time, "sleep", sleep)
    with acquire(tmp_path):
        assert set(waits) == {locks.PAUSE_S}


@pytest.mark.usefixtures("copy")
def test_a_start_gives_up_on_copies_that_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "GRACE_S", 0.05)
    with pytest.raises(HeldError):
        acquire(tmp_path)


def test_a_start_does_not_wait_for_a_living_holder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: pytest.fail("it waits"))
    with acquire(tmp_path) as lock:
        lock.write({"pid": os.getpid()})
        with pytest.raises(HeldError):
            acquire(tmp_path)
