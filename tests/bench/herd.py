"""Many live sessions with scripted agents, created once for a group of rows."""

import asyncio
from collections.abc import Collection
from pathlib import Path

from ramet.v1 import session_pb2

from tests.bench.figures import progress
from tests.support.agents import script
from tests.support.daemon import IDLE, Client
from tests.support.eventually import eventually

CONFIG = "max_working = 1000\n"


async def sessions_of(client: Client) -> list[session_pb2.Session]:
    request = session_pb2.ListSessionsRequest(page_size=1000)
    return list((await client.sessions.ListSessions(request, metadata=client.metadata)).sessions)


async def all_idle(client: Client, count: int, *, alive: bool = True) -> list[session_pb2.Session]:
    """Wait until ``count`` sessions are idle and their agents alive, or asleep."""

    async def look() -> list[session_pb2.Session]:
        sessions = await sessions_of(client)
        there = [each for each in sessions if each.state == IDLE and each.agent_alive == alive]
        assert len(there) == count, f"{len(there)} of {count}"
        return there

    return await eventually(look, within=180, every=0.2)


async def gather_herd(client: Client, repository: Path, count: int, *, first: int = 0) -> list[str]:
    """Create sessions until there are ``count``; each has had one turn and its agent is alive.
    Return all ids."""
    for number in range(first, count):
        await client.create(repository, script({"text": "ready"}), name=f"s{number}")
    progress(f"{count} sessions are made; waiting for their agents")
    return [session.id for session in await all_idle(client, count)]


async def put_to_sleep(client: Client, ids: Collection[str]) -> None:
    """End the agents; the sessions stay idle."""
    await asyncio.gather(
        *(
            client.sessions.StopSession(session_pb2.StopSessionRequest(session=each), metadata=client.metadata)
            for each in ids
        )
    )
    await all_idle(client, len(ids), alive=False)
