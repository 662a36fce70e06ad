"""One daemon for all tests of plans; each test has its own repository."""

import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.support.daemon import Client, DaemonProcess, connected, daemon_process, make_sandbox


@pytest.fixture(scope="package")
def running() -> Iterator[DaemonProcess]:
    with make_sandbox(config="max_working = 50") as sandbox, daemon_process(sandbox) as daemon:
        yield daemon


@pytest.fixture
async def client(running: DaemonProcess) -> AsyncIterator[Client]:
    async with connected(running.sandbox) as connection:
        yield connection


@pytest.fixture
def repository(running: DaemonProcess) -> Path:
    return running.sandbox.repository(f"r{uuid.uuid4().hex[:8]}")
