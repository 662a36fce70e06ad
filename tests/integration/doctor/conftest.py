"""A daemon inside the test's own loop, whose database tests can change while it is stopped."""

from collections.abc import AsyncIterator

import pytest

from tests.support.daemon import Client, Sandbox, connected, daemon_here


@pytest.fixture
async def client(sandbox: Sandbox) -> AsyncIterator[Client]:
    async with daemon_here(sandbox), connected(sandbox) as client:
        yield client
