"""The lock on a directory while its holder's descriptors are in another process too."""

import fcntl
import json
import os
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


@pytest.fixture
def copy(tmp_path: Path) -> Iterator[int]:
    """A descriptor that still holds the lock of a daemon that has ended, as a program between fork and exec has it."""
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    (tmp_path / NAME).write_text(json.dumps({"pid": ended.pid}))
    descriptor = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    yield descriptor
    os.close(descriptor)


def test_a_start_waits_for_the_copies_that_a_killed_holder_left(
    copy: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        fcntl.flock(copy, fcntl.LOCK_UN)  # the program runs, and its descriptors are closed

    monkeypatch.setattr(time, "sleep", sleep)
    with acquire(tmp_path):
        assert waits == [locks.PAUSE_S]


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
