"""A name for a session never means another session's request."""

import sqlite3
from contextlib import closing
from pathlib import Path

import grpc
import pytest
from ramet.v1 import attention_pb2

from tests.support.agents import script
from tests.support.daemon import IDLE, WAITING, Client, DaemonProcess, reason_of

APPROVE = attention_pb2.Resolution(approve=attention_pb2.Approval())
ASKS = script({"tool": "Bash", "input": {"command": "true", "description": "x"}}, {"text": "done"})


async def resolve(client: Client, request: str) -> attention_pb2.ResolveRequestResponse:
    message = attention_pb2.ResolveRequestRequest(request=request, resolution=APPROVE)
    return await client.attention.ResolveRequest(message, metadata=client.metadata)


async def test_a_sessions_name_goes_before_the_beginning_of_anothers_request(client: Client, repository: Path) -> None:
    await client.create(repository, ASKS, name="dangerous")
    await client.reach("dangerous", WAITING)
    listed = await client.attention.ListRequests(attention_pb2.ListRequestsRequest(), metadata=client.metadata)
    short = listed.requests[0].id[:3]
    await client.create(repository, ASKS, name=short)
    await client.reach(short, WAITING)

    answered = await resolve(client, short)

    assert answered.request.session_name == short
    await client.reach(short, IDLE)
    assert (await client.get("dangerous")).state == WAITING


async def test_a_late_answer_gets_the_earlier_answer(client: Client, repository: Path) -> None:
    await client.create(repository, ASKS, name="asks")
    await client.reach("asks", WAITING)
    first = await resolve(client, "asks")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await resolve(client, first.request.id)
    assert reason_of(caught.value) == "REQUEST_CLOSED"
    assert "owner has approved it already, at " in str(caught.value.details())


@pytest.mark.full
async def test_an_answer_that_the_agent_never_got_counts_when_it_asks_again(
    daemon: DaemonProcess, client: Client, repository: Path
) -> None:
    await client.create(repository, ASKS, name="asks")
    await client.reach("asks", WAITING)
    daemon.kill()
    daemon.sandbox.kill_everything()
    # An answer of a daemon that did not know yet that the agent had ended.
    with closing(sqlite3.connect(daemon.sandbox.root / "state" / "ramet.db")) as db, db:
        answer = '{"decision": "approve", "updated_input": "", "scope": 1, "mode": 0}'
        db.execute(
            "UPDATE requests SET state = 'answered', answer = ?, answered_by = 'owner', answer_time = 1.0", (answer,)
        )
        db.execute("UPDATE sessions SET state = 'working'")
    daemon.start()
    session = await client.reach("asks", IDLE)
    assert session.turns == 1
