"""Fixtures of tests with real agents: one scripted model for a module, and stubs for the daemon
that the module starts."""

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.support.agents import model_process
from tests.support.daemon import Client, DaemonProcess, connected, daemon_process, make_sandbox


@pytest.fixture(scope="module")
def model() -> Iterator[int]:
    """Run a scripted model; return its port."""
    with model_process() as port:
        yield port


@pytest.fixture
def daemon(model: int) -> Iterator[DaemonProcess]:
    """Run a daemon that starts the real Claude Code CLI, also without permission checks."""
    config = "[permissions]\nallow_bypass = true\n"
    with make_sandbox(model_port=model, real_cli=True, config=config) as sandbox, daemon_process(sandbox) as running:
        yield running


@pytest.fixture
async def client(daemon: DaemonProcess) -> AsyncIterator[Client]:
    async with connected(daemon.sandbox) as connection:
        yield connection
