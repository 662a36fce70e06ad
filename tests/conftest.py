"""Fixtures for all tests. A test gets a sandbox of its own, never a person's directories."""

import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import hypothesis
import pytest

from tests.support.daemon import Client, DaemonProcess, Sandbox, connected, daemon_process, make_sandbox

# A job in the background of a shell is started with SIGINT ignored, and so would be all that it starts: the tests of Ctrl-C too.
signal.signal(signal.SIGINT, signal.default_int_handler)

# No deadline: a loaded machine is no fault. No database: what fails must fail from the source alone.
hypothesis.settings.register_profile("ramet", deadline=None, database=None)
hypothesis.settings.load_profile("ramet")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--crash-rounds", type=int, default=12, help="how often tests/crash kills the daemon under its agents"
    )


@pytest.fixture(autouse=True)
def _nobodys_home(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """No test reads or writes the directories of whoever runs it."""
    home = tmp_path_factory.mktemp("home")
    for name in (
        "RAMET_HOME",
        "RAMET_RUNTIME_DIR",
        "RAMET_TOKEN",
        "RAMET_SESSION",
        "XDG_STATE_HOME",
        "XDG_RUNTIME_DIR",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / ".config"))
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(home / ".claude"))


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    """Private directories; agents are scripted."""
    with make_sandbox() as made:
        yield made


@pytest.fixture
def daemon(sandbox: Sandbox) -> Iterator[DaemonProcess]:
    """A daemon process that serves in the sandbox."""
    with daemon_process(sandbox) as running:
        yield running


@pytest.fixture
async def client(daemon: DaemonProcess) -> AsyncIterator[Client]:
    """Stubs that talk to the daemon process."""
    async with connected(daemon.sandbox) as connection:
        yield connection


@pytest.fixture
def repository(sandbox: Sandbox) -> Path:
    """A small repository in the sandbox."""
    return sandbox.repository()
