"""Fixtures `client` and `sandbox` of a module's one daemon, its fixture ``running``, and
helpers."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from rametd.services.tokens import Tokens

from tests.support.daemon import Client, DaemonProcess, Sandbox, connected


@pytest.fixture
async def client(running: DaemonProcess) -> AsyncIterator[Client]:
    async with connected(running.sandbox) as connection:
        yield connection


@pytest.fixture
def sandbox(running: DaemonProcess) -> Sandbox:
    return running.sandbox


def repo_of(daemon: DaemonProcess) -> Path:
    return daemon.sandbox.root / "repo"


def token_for(daemon: DaemonProcess, session_id: str) -> str:
    return Tokens.load(daemon.sandbox.root / "state" / "secrets" / "token.key").give(session_id)
