"""One daemon for the tests of a module that leave it as it is."""

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.support.daemon import Client, DaemonProcess, connected, daemon_process, make_sandbox


@pytest.fixture(scope="module")
def running() -> Iterator[DaemonProcess]:
    """One daemon for the tests that leave it as it is; its sandbox has a repository ``repo``."""
    with make_sandbox() as sandbox, daemon_process(sandbox) as daemon:
        sandbox.repository()
        yield daemon


@pytest.fixture
async def shared(running: DaemonProcess) -> AsyncIterator[Client]:
    async with connected(running.sandbox) as client:
        yield client
