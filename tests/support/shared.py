"""One daemon for all tests of a module; each test has its own repository, and none of the earlier
sessions."""

from collections.abc import AsyncIterator, Iterator
from itertools import count
from pathlib import Path

import pytest
from ramet.v1 import session_pb2

from tests.support.daemon import Client, DaemonProcess, Sandbox, connected, daemon_process, make_sandbox

_numbers = count()


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with make_sandbox() as made:
        yield made


@pytest.fixture(scope="module")
def daemon(sandbox: Sandbox) -> Iterator[DaemonProcess]:
    with daemon_process(sandbox) as running:
        yield running


@pytest.fixture
def repository(sandbox: Sandbox) -> Path:
    return sandbox.repository(f"repo{next(_numbers)}")


@pytest.fixture
async def client(daemon: DaemonProcess) -> AsyncIterator[Client]:
    async with connected(daemon.sandbox) as connection:
        yield connection
    async with connected(daemon.sandbox) as connection:
        listed = await connection.sessions.ListSessions(session_pb2.ListSessionsRequest(include_archived=True))
        for session in listed.sessions:
            await connection.sessions.DeleteSession(session_pb2.DeleteSessionRequest(session=session.id, force=True))
