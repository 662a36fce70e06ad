"""Kill the daemon at each step of a warm agent: none is left over, and no conversation ever has two
processes."""

import contextlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
from ramet.v1 import worktree_pb2

from tests.crash.scene import delete, leftovers, pids_of, rows
from tests.support.daemon import IDLE, Client, DaemonProcess, Sandbox, connected, make_sandbox
from tests.support.eventually import eventually, eventually_sync

pytestmark = pytest.mark.crash


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    with make_sandbox(config="[pool]\nsize = 1\nwarm_agents = 1\n") as sandbox:
        yield sandbox


@asynccontextmanager
async def serving(killed: DaemonProcess, failpoint: str = "") -> AsyncIterator[Client]:
    killed.start(RAMET_FAILPOINT=failpoint)
    async with connected(killed.sandbox) as client:
        yield client


async def dead(killed: DaemonProcess) -> None:
    process = killed.process
    assert process is not None
    await eventually(lambda: process.poll() is not None)
    assert process.returncode == -9


async def warm(client: Client, repository: Path) -> worktree_pb2.Spare:
    async def look() -> worktree_pb2.Spare:
        pool = await client.worktrees.GetPool(worktree_pb2.GetPoolRequest(repo=str(repository)))
        assert [spare.warm_agent for spare in pool.spares] == [True], pool
        return pool.spares[0]

    return await eventually(look)


def warm_places(sandbox: Sandbox) -> set[str]:
    return {path.name for path in (sandbox.root / "state" / "agents").glob("*-0")}


@pytest.mark.parametrize("point", ["warm.started", "warm.ready"])
async def test_an_agent_of_a_killed_daemon_ends_and_its_spare_gets_another(sandbox: Sandbox, point: str) -> None:
    killed, repository = DaemonProcess(sandbox), sandbox.repository()
    async with serving(killed, point) as client:
        await client.create(repository, name="one")
        await dead(killed)
    before = {each.pid for each in sandbox.processes()}

    async with serving(killed) as client:
        spare = await warm(client, repository)
        assert warm_places(sandbox) == {f"{spare.id}-0"}
        agents = [each for each in sandbox.processes() if each.environ().get("RAMET_SESSION") == spare.id]
        assert len(agents) == 1
        assert not before & {each.pid for each in sandbox.processes()}
        await client.worktrees.DrainPool(worktree_pb2.DrainPoolRequest(repo=str(repository)))
        await delete(client, "one")
        assert not warm_places(sandbox)
    killed.kill()
    assert not leftovers(sandbox, repository)
    eventually_sync(lambda: not sandbox.processes())


@pytest.mark.parametrize(
    "point", ["create.claimed", "create.inserted", pytest.param("warm.taken", marks=pytest.mark.smoke), "launch.stored"]
)
async def test_a_claim_that_is_killed_leads_to_one_agent(sandbox: Sandbox, point: str) -> None:
    killed, repository = DaemonProcess(sandbox), sandbox.repository()
    async with serving(killed) as client:
        await client.create(repository, name="one")
        await warm(client, repository)
    killed.kill()
    async with serving(killed, point) as client:
        spare = await warm(client, repository)
        with contextlib.suppress(grpc.aio.AioRpcError):
            await client.create(repository, "hello", name="two", request_id="the one")
        await dead(killed)

    async with serving(killed) as client:
        session = await client.create(repository, "hello", name="two", request_id="the one")
        assert (session.id == spare.id) == (point != "create.claimed")
        session = await client.reach("two", IDLE)
        assert session.turns == 1
        ((conversation,),) = rows(sandbox, "SELECT conversation_id FROM sessions WHERE name = 'two'")
        assert len(pids_of(sandbox, str(conversation))) == 1
        waits = await warm(client, repository)
        stored = " ".join(str(handle) for (handle,) in rows(sandbox, "SELECT handle FROM agents"))
        taken = {place for place in warm_places(sandbox) if f'"{place.removesuffix("-0")}", "generation": 0' in stored}
        assert warm_places(sandbox) == {f"{waits.id}-0"} | taken
        assert (point != "launch.stored") or taken == {f"{session.id}-0"}
        await client.worktrees.DrainPool(worktree_pb2.DrainPoolRequest(repo=str(repository)))
        await delete(client, "one")
        await delete(client, "two")
        assert not warm_places(sandbox)
    killed.kill()
    assert not leftovers(sandbox, repository)
    eventually_sync(lambda: not sandbox.processes())


async def test_a_daemon_that_is_stopped_takes_its_warm_agents_with_it(sandbox: Sandbox) -> None:
    killed, repository = DaemonProcess(sandbox), sandbox.repository()
    async with serving(killed) as client:
        await client.create(repository, name="one")
        await warm(client, repository)
    killed.stop()
    eventually_sync(lambda: not sandbox.processes())
    assert not warm_places(sandbox)
