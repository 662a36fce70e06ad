"""Kill the daemon while a spare is created, updated, claimed or removed: no tree is half-claimed,
and nothing is left over."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
from ramet.v1 import session_pb2, worktree_pb2

from tests.crash.scene import delete, leftovers, rows
from tests.support.daemon import Client, DaemonProcess, Sandbox, connected, git, make_sandbox
from tests.support.eventually import eventually

pytestmark = pytest.mark.crash


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    with make_sandbox(config="[pool]\nsize = 1\n") as sandbox:
        yield sandbox


@pytest.fixture
def killed(sandbox: Sandbox) -> DaemonProcess:
    return DaemonProcess(sandbox)


@asynccontextmanager
async def serving(killed: DaemonProcess, failpoint: str = "") -> AsyncIterator[Client]:
    killed.start(RAMET_FAILPOINT=failpoint)
    async with connected(killed.sandbox) as client:
        yield client


def wait_for_death(killed: DaemonProcess) -> None:
    assert killed.process is not None
    assert killed.process.wait(timeout=30) == -9


async def the_spare(client: Client, repository: Path) -> worktree_pb2.Spare:
    async def look() -> worktree_pb2.Spare:
        pool = await client.worktrees.GetPool(worktree_pb2.GetPoolRequest(repo=str(repository)))
        assert [spare.state for spare in pool.spares] == ["ready"], pool
        return pool.spares[0]

    return await eventually(look)


def trees(sandbox: Sandbox, repository: Path) -> set[str]:
    """Return git's worktrees and the directories on disk, which must be the same."""
    known = {line.split()[0] for line in git(repository, "worktree", "list").splitlines()[1:]}
    found = {str(path) for path in (sandbox.root / "state" / "worktrees").glob("*/*") if path.name != "by-name"}
    assert known == found
    return found


@pytest.mark.parametrize("point", ["spare.intended", "spare.made", "spare.ready"])
async def test_an_unfinished_spare_is_removed_and_replaced(killed: DaemonProcess, sandbox: Sandbox, point: str) -> None:
    repository = sandbox.repository()
    async with serving(killed, point) as client:
        session = await client.create(repository, name="one")
        wait_for_death(killed)
    half = rows(sandbox, "SELECT path, state FROM spares")
    assert [state for _, state in half] == ["ready" if point == "spare.ready" else "making"]

    async with serving(killed) as client:
        spare = await the_spare(client, repository)
        assert (spare.path == half[0][0]) == (point == "spare.ready")
        await eventually(lambda: trees(sandbox, repository) == {session.worktree, spare.path})
        await client.worktrees.DrainPool(worktree_pb2.DrainPoolRequest(repo=str(repository)))
        await delete(client, "one")
    assert not leftovers(sandbox, repository)
    killed.kill()


@pytest.mark.parametrize("point", ["spare.update-intended", "spare.updated"])
async def test_a_spare_that_was_being_updated_is_never_given_away_half_done(
    killed: DaemonProcess, sandbox: Sandbox, point: str
) -> None:
    repository = sandbox.repository()
    async with serving(killed) as client:
        await client.create(repository, name="one")
        await the_spare(client, repository)
    killed.kill()
    git(repository, "commit", "-q", "--allow-empty", "-m", "second")
    killed.start(wait=False, RAMET_FAILPOINT=point)
    wait_for_death(killed)
    assert rows(sandbox, "SELECT state FROM spares") == [("updating",)]

    async with serving(killed) as client:
        session = await client.create(repository, name="two")
        assert session.base_commit == git(repository, "rev-parse", "HEAD")
        assert git(Path(session.worktree), "status", "--porcelain") == ""
        assert git(Path(session.worktree), "branch", "--show-current") == "ramet/two"
    killed.kill()


@pytest.mark.parametrize(
    "point", [pytest.param("create.intended", marks=pytest.mark.smoke), "create.claimed", "create.files-written"]
)
async def test_a_claim_that_is_killed_is_undone_and_the_repeated_call_makes_one_session(
    killed: DaemonProcess, sandbox: Sandbox, point: str
) -> None:
    repository = sandbox.repository()
    async with serving(killed) as client:
        await client.create(repository, name="one")
        spare = await the_spare(client, repository)
    killed.kill()
    async with serving(killed, point) as client:
        with pytest.raises(grpc.aio.AioRpcError):
            await client.create(repository, name="two", request_id="the one")
        wait_for_death(killed)
    assert rows(sandbox, "SELECT session_id FROM operations") == [(spare.id,)]
    assert rows(sandbox, "SELECT count(*) FROM spares") == [(0,)], "it is no spare once its removal is intended"

    async with serving(killed) as client:
        session = await client.create(repository, name="two", request_id="the one")
        again = await client.create(repository, name="two", request_id="the one")
        assert again.id == session.id
        assert session.branch == "ramet/two", "the first one's branch is deleted"
        left = await the_spare(client, repository)
        assert left.id != spare.id
        await eventually(lambda: not Path(spare.path).exists())
        listed = await client.sessions.ListSessions(session_pb2.ListSessionsRequest())
        assert [each.name for each in listed.sessions] == ["one", "two"]
        await client.worktrees.DrainPool(worktree_pb2.DrainPoolRequest(repo=str(repository)))
        for name in ("one", "two"):
            await delete(client, name)
    assert not leftovers(sandbox, repository)
    killed.kill()


@pytest.mark.parametrize("point", ["spare.removal-intended", "spare.removed"])
async def test_a_removal_of_a_spare_that_is_killed_is_completed(
    killed: DaemonProcess, sandbox: Sandbox, point: str
) -> None:
    repository = sandbox.repository()
    async with serving(killed) as client:
        session = await client.create(repository, name="one")
        spare = await the_spare(client, repository)
    killed.kill()
    async with serving(killed, point) as client:
        with pytest.raises(grpc.aio.AioRpcError):
            await client.worktrees.DrainPool(worktree_pb2.DrainPoolRequest(repo=str(repository)))
        wait_for_death(killed)
    assert rows(sandbox, "SELECT state FROM spares") == [("removing",)]

    async with serving(killed) as client:
        fresh = await the_spare(client, repository)
        assert fresh.id != spare.id
        await eventually(lambda: trees(sandbox, repository) == {session.worktree, fresh.path})
    killed.kill()
