"""A failed fork leaves nothing: no checkpoint of its source, no ref, no operation."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from ramet.v1 import session_pb2, worktree_pb2

from tests.crash.scene import rows
from tests.support.daemon import Client, Sandbox, git, reason_of
from tests.support.eventually import eventually

pytestmark = pytest.mark.full

MANUAL = worktree_pb2.CHECKPOINT_REASON_MANUAL
START = worktree_pb2.CHECKPOINT_REASON_START
FORK = worktree_pb2.CHECKPOINT_REASON_FORK


@pytest.fixture
async def session(client: Client, repository: Path) -> session_pb2.Session:
    """Create a session with one checkpoint, and a change since."""
    made = await client.create(repository, name="one")
    await eventually(lambda: client.checkpoints("one"))
    (Path(made.worktree) / "draft.txt").write_text("a draft\n")
    return made


async def reasons(client: Client) -> list[int]:
    """Return the reason of each checkpoint, the oldest first."""
    answer: Any = await client.worktrees.ListCheckpoints(worktree_pb2.ListCheckpointsRequest(session="one"))
    return [each.reason for each in reversed(answer.checkpoints)]


def refs(repository: Path, session: session_pb2.Session) -> list[str]:
    listed = git(repository, "for-each-ref", "--format=%(refname)", f"refs/ramet/checkpoints/{session.id}")
    return [ref.rpartition("/")[2] for ref in listed.split()]


def a_branch_in_the_way(repository: Path) -> session_pb2.ForkSessionRequest:
    git(repository, "branch", "taken")
    return session_pb2.ForkSessionRequest(session="one", branch="taken")


REFUSED: dict[str, Callable[[Path], session_pb2.ForkSessionRequest]] = {
    "NAME_TAKEN": lambda repository: session_pb2.ForkSessionRequest(session="one", name="one"),
    "BAD_NAME": lambda repository: session_pb2.ForkSessionRequest(session="one", branch="no..branch"),
    "BRANCH_TAKEN": a_branch_in_the_way,
    "PROMPT_TOO_LARGE": lambda repository: session_pb2.ForkSessionRequest(session="one", prompt="x" * (17 << 20)),
}


@pytest.mark.parametrize("why", REFUSED)
async def test_a_fork_that_is_refused_leaves_no_checkpoint(
    client: Client, sandbox: Sandbox, repository: Path, session: session_pb2.Session, why: str
) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await client.sessions.ForkSession(REFUSED[why](repository))

    assert reason_of(caught.value) == why, caught.value.details()
    assert await reasons(client) == [START]
    assert refs(repository, session) == ["1"]
    assert rows(sandbox, "SELECT kind FROM operations") == []

    await client.sessions.ForkSession(session_pb2.ForkSessionRequest(session="one"))  # the number is reused
    assert await reasons(client) == [START, FORK]
    assert refs(repository, session) == ["1", "2"]


async def test_a_fork_that_is_refused_drops_no_checkpoint_but_its_own(
    client: Client, repository: Path, session: session_pb2.Session
) -> None:
    await client.sessions.ForkSession(session_pb2.ForkSessionRequest(session="one", name="two"))
    refusals = [
        client.sessions.ForkSession(session_pb2.ForkSessionRequest(session="one", name="two")) for _ in range(3)
    ]
    made = client.sessions.ForkSession(session_pb2.ForkSessionRequest(session="one"))

    answers = await asyncio.gather(*refusals, made, return_exceptions=True)

    assert [reason_of(each) for each in answers if isinstance(each, grpc.aio.AioRpcError)] == ["NAME_TAKEN"] * 3
    assert await reasons(client) == [START, FORK, FORK]
    assert len(refs(repository, session)) == 3


async def test_a_fork_whose_caller_hangs_up_is_completed_or_undone(
    client: Client, sandbox: Sandbox, session: session_pb2.Session
) -> None:
    for hundredth in range(0, 12, 2):
        call = client.sessions.ForkSession(session_pb2.ForkSessionRequest(session="one"))
        await asyncio.wait([asyncio.ensure_future(call.wait_for_connection())])
        await asyncio.wait([asyncio.ensure_future(call)], timeout=hundredth / 100)
        call.cancel()
    await eventually(lambda: rows(sandbox, "SELECT kind FROM operations") == [])

    [(forks,)] = rows(sandbox, "SELECT count(*) FROM sessions WHERE forked_from != ''")
    assert (await reasons(client)).count(FORK) == forks


async def test_a_failed_fork_removes_its_checkpoint_only_if_nothing_uses_it(
    client: Client, session: session_pb2.Session
) -> None:
    await client.sessions.ForkSession(session_pb2.ForkSessionRequest(session="one", name="two"))
    await client.worktrees.CreateCheckpoint(worktree_pb2.CreateCheckpointRequest(session="one"))
    assert await reasons(client) == [START, FORK, MANUAL]
