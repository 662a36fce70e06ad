"""Sessions that wait for a removed one."""

from pathlib import Path

import pytest
from ramet.v1 import session_pb2

from tests.support.agents import script
from tests.support.archiving import remove, restore_trash, turns
from tests.support.daemon import IDLE, Client
from tests.support.eventually import eventually

pytestmark = pytest.mark.full


async def test_successors_of_an_unfinished_removed_session_are_held_until_released(
    client: Client, repository: Path
) -> None:
    first = await client.create(repository, script({"hang": True}), name="first")
    await client.reach("first", session_pb2.SESSION_STATE_WORKING)
    await client.create(repository, script({"text": "second"}), name="second", after=["first"])
    await remove(client, "first", force=True)

    async def held() -> session_pb2.Session:
        session = await client.get("second")
        assert "was removed before it was done" in session.state_reason
        assert "rametctl restore first" in session.state_reason
        assert session.state == session_pb2.SESSION_STATE_QUEUED
        return session

    await eventually(held)
    await restore_trash(client, first.id)

    async def waits() -> bool:
        return (await client.get("second")).state_reason == "waits for first"

    await eventually(waits)
    await remove(client, "first", force=True)
    await eventually(held)
    await client.sessions.ResumeSession(session_pb2.ResumeSessionRequest(session="second"))
    await client.reach("second", IDLE)


async def test_a_removed_predecessor_that_was_done_holds_no_session(client: Client, repository: Path) -> None:
    await client.create(repository, script({"text": "first"}), name="first")
    await client.reach("first", IDLE)
    await eventually(lambda: turns(client, "first", 1))
    await client.create(repository, script({"text": "second"}), name="second", after=["first"], priority=-1)
    await remove(client, "first")
    await client.reach("second", IDLE)
    await eventually(lambda: turns(client, "second", 1))
