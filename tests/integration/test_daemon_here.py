"""The complete life of a session in a daemon that shares the test's loop, which nothing may
block."""

import gc
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
import rametd
import structlog
from blockbuster import BlockingError
from ramet.v1 import attention_pb2, common_pb2, daemon_pb2, event_pb2, repo_pb2, session_pb2, worktree_pb2
from rametd.app import Daemon
from rametd.keeper.executor import JournalLine

from tests.support.agents import script
from tests.support.blocking import no_blocking_calls
from tests.support.daemon import IDLE, WAITING, Client, Sandbox, connected, daemon_here, reason_of
from tests.support.eventually import eventually

EDITS = common_pb2.PERMISSION_MODE_ACCEPT_EDITS


@pytest.fixture
async def here(sandbox: Sandbox, repository: Path) -> AsyncIterator[Daemon]:
    """Yield a daemon in whose tasks no call may block the loop."""
    async with daemon_here(sandbox) as daemon:
        with no_blocking_calls(), structlog.testing.capture_logs() as logged:
            yield daemon
    assert [entry for entry in logged if entry["log_level"] in {"error", "critical"}] == []


@pytest.fixture
async def client(here: Daemon, sandbox: Sandbox) -> AsyncIterator[Client]:
    async with connected(sandbox) as connection:
        yield connection


async def test_an_idle_agent_leaves_no_line_in_memory(client: Client, repository: Path) -> None:
    await client.create(repository, script({"text": "long " * 100_000}), name="idle")
    await client.reach("idle", IDLE)

    await eventually(lambda: not [each for each in gc.get_objects() if isinstance(each, JournalLine)])


async def test_from_new_to_rm_nothing_blocks_the_loop(client: Client, sandbox: Sandbox, repository: Path) -> None:
    write = {"tool": "Write", "input": {"file_path": "$CWD/new.txt", "content": "text\n"}}
    ask = {"tool": "Bash", "input": {"command": "echo ran > ran.txt", "description": "x"}}
    made = await client.create(repository, script(write, ask, {"text": "done"}), name="life", mode=EDITS)
    await client.reach("life", WAITING)
    listed = await client.attention.ListRequests(attention_pb2.ListRequestsRequest())
    approve = attention_pb2.Resolution(approve=attention_pb2.Approval())
    await client.attention.ResolveRequest(
        attention_pb2.ResolveRequestRequest(request=listed.requests[0].id, resolution=approve, request_id="r")
    )
    await client.reach("life", IDLE)

    await client.daemon.GetConfig(daemon_pb2.GetConfigRequest(repo_path=str(repository)))
    await client.daemon.GetStatistics(daemon_pb2.GetStatisticsRequest())
    await client.repos.ListRepos(repo_pb2.ListReposRequest())
    await client.sessions.ListSessions(session_pb2.ListSessionsRequest(repo=str(repository)))
    await client.sessions.GetSession(session_pb2.GetSessionRequest(session="life", path=str(repository)))
    await client.events.ListEvents(event_pb2.ListEventsRequest(session="life", include_frames=True))
    diff = await client.worktrees.GetDiff(worktree_pb2.GetDiffRequest(session="life"))
    assert {file.path for file in diff.files} == {"new.txt", "ran.txt"}

    await client.sessions.StopSession(session_pb2.StopSessionRequest(session="life"))
    await client.send("life", script({"text": "again"}))
    await client.reach("life", IDLE)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await client.sessions.DeleteSession(session_pb2.DeleteSessionRequest(session="life"))
    assert reason_of(caught.value) == "WORK_AT_RISK"
    await client.sessions.DeleteSession(session_pb2.DeleteSessionRequest(session="life", force=True))
    assert not sandbox.agents()
    failed = [
        event for event in await client.log() if event.HasField("state_changed") and event.state_changed.new_state == 8
    ]
    assert failed == []
    assert made.worktree


async def test_what_is_refused_blocks_nothing_either(client: Client, sandbox: Sandbox, repository: Path) -> None:
    for fields, reason in (
        ({"path": sandbox.root / "home"}, "REPO_NOT_FOUND"),
        ({"path": repository, "base_ref": "nowhere"}, "REF_NOT_FOUND"),
        ({"path": repository, "existing_branch": "main"}, "BRANCH_TAKEN"),
        ({"path": repository, "parent": "nobody"}, "SESSION_NOT_FOUND"),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await client.create(**fields)
        assert reason_of(caught.value) == reason


async def test_the_guard_guards(here: Daemon) -> None:
    ours = Path(rametd.__file__ or "").with_name("sleepy.py")
    with pytest.raises(BlockingError):
        exec(compile("import time; time.sleep(0)", str(ours), "exec"), {})  # noqa: S102 - a module of the daemon's that blocks
