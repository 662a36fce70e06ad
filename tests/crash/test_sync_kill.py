"""Kill a sync at each of its steps: files that a person writes before the next daemon's start stay,
and unfinished work is reported."""

import asyncio
import os
import signal
from pathlib import Path

import grpc
import pytest
from ramet.v1 import session_pb2, worktree_pb2

from tests.crash.scene import rows
from tests.crash.test_failpoints import die_in
from tests.crash.test_rewind_kill import slow_git
from tests.support.daemon import Client, DaemonProcess, Sandbox, connected, git
from tests.support.eventually import eventually

pytestmark = pytest.mark.crash

MERGE, REBASE = worktree_pb2.SYNC_METHOD_MERGE, worktree_pb2.SYNC_METHOD_REBASE


async def sync(
    client: Client, method: worktree_pb2.SyncMethod.ValueType, request_id: str = ""
) -> worktree_pb2.SyncSessionResponse:
    request = worktree_pb2.SyncSessionRequest(session="made", method=method, request_id=request_id)
    return await client.worktrees.SyncSession(request, metadata=client.metadata)


async def worked_on(client: Client, repository: Path) -> session_pb2.Session:
    """Create a session with a commit and a draft, and a newer commit on the base."""
    made = await client.create(repository, name="made")
    tree = Path(made.worktree)
    (tree / "own").write_text("own\n")
    git(tree, "add", "own")
    git(tree, "commit", "-qm", "own")
    (tree / "draft").write_text("mine\n")
    for name in ("dir0/file0.txt", "dir1/file1.txt", "theirs"):
        (repository / name).write_text("the base's\n")
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "base")
    return made


def edit(tree: Path) -> None:
    """Write, as a person, while no daemon runs: beside the files of a sync, and in their place."""
    for name in ("own", "draft", "dir0/file0.txt", "since"):
        (tree / name).write_text("edited since\n")


def is_edited(tree: Path) -> None:
    for name in ("own", "draft", "dir0/file0.txt", "since"):
        assert (tree / name).read_text() == "edited since\n", name


async def warnings(client: Client) -> list[str]:
    return [words for event in await client.log("made") if (words := event.warning.message)]


async def no_operations(sandbox: Sandbox) -> None:
    def nothing() -> bool:
        assert rows(sandbox, "SELECT kind FROM operations") == []
        return True

    await eventually(nothing)


@pytest.mark.parametrize(
    ("step", "method"),
    [pytest.param("sync.intended", MERGE, marks=pytest.mark.smoke), ("sync.kept", REBASE), ("sync.synced", MERGE)],
)
async def test_what_is_written_between_the_kill_and_the_next_start_stays(
    sandbox: Sandbox, repository: Path, step: str, method: worktree_pb2.SyncMethod.ValueType
) -> None:
    daemon = DaemonProcess(sandbox)
    daemon.start(RAMET_FAILPOINT=step)
    async with connected(sandbox) as client:
        made = await worked_on(client, repository)
    tree = Path(made.worktree)
    await die_in(daemon, sandbox, lambda client: sync(client, method))
    done = step == "sync.synced"
    edit(tree)
    daemon.start()

    await no_operations(sandbox)
    is_edited(tree)
    assert git(tree, "branch", "--show-current") == made.branch
    assert (tree / "theirs").exists() == done
    async with connected(sandbox) as client:
        assert await warnings(client) == []
        session = await client.get("made")
        assert session.base_commit == (git(repository, "rev-parse", "HEAD") if done else made.base_commit)
        synced = [event for event in await client.log("made") if event.HasField("session_synced")]
        assert [event.session_synced.new_commit for event in synced] == (
            [git(tree, "rev-parse", "HEAD")] if done else []
        )
        git(tree, "checkout", "-q", "--", "dir0/file0.txt")
        assert (await sync(client, method)).commits == (0 if done else 1)
    daemon.kill()


async def cut_off(
    sandbox: Sandbox, daemon: DaemonProcess, repository: Path, gate: Path, method: worktree_pb2.SyncMethod.ValueType
) -> tuple[session_pb2.Session, int]:
    """Kill the daemon while git writes the second of three files; return git's process id."""
    begun = gate.with_name("begun")
    daemon.start()
    async with connected(sandbox) as client:
        made = await worked_on(client, repository)
        gate.touch()
        asked = asyncio.ensure_future(sync(client, method, "the one"))
        await eventually(begun.exists)
        daemon.kill()
        with pytest.raises(grpc.aio.AioRpcError):
            await asked
    return made, int(begun.read_text())


async def test_a_git_that_outlives_the_daemon_is_waited_for_and_what_it_did_counts(
    sandbox: Sandbox, repository: Path
) -> None:
    daemon = DaemonProcess(sandbox)
    with slow_git(sandbox, repository) as gate:
        made, _ = await cut_off(sandbox, daemon, repository, gate, REBASE)
        tree = Path(made.worktree)
        edit(tree)
        daemon.start()
        assert rows(sandbox, "SELECT kind FROM operations") == [("sync",)]
        async with connected(sandbox) as client:
            again = asyncio.ensure_future(sync(client, REBASE, "the one"))

            gate.unlink()

            assert (await again).commits == 1
        await no_operations(sandbox)
    is_edited(tree)
    assert (tree / "dir1/file1.txt").read_text() == "the base's\n"
    assert git(tree, "branch", "--show-current") == made.branch
    async with connected(sandbox) as client:
        assert await warnings(client) == []
        assert (await client.get("made")).base_commit == git(repository, "rev-parse", "HEAD")
    daemon.kill()


async def test_files_that_a_killed_git_half_wrote_are_reported_and_can_be_rewound(
    sandbox: Sandbox, repository: Path
) -> None:
    daemon = DaemonProcess(sandbox)
    with slow_git(sandbox, repository) as gate:
        made, pid = await cut_off(sandbox, daemon, repository, gate, MERGE)
        os.killpg(pid, signal.SIGKILL)
    tree = Path(made.worktree)
    for name in ("own", "draft", "since"):
        (tree / name).write_text("edited since\n")
    daemon.start()

    await no_operations(sandbox)
    assert (tree / "dir0/file0.txt").read_text() == "the base's\n"
    assert (tree / "own").read_text() == "edited since\n"
    async with connected(sandbox) as client:
        (words,) = await warnings(client)
        assert "interrupted while git wrote files" in words
        found = await client.worktrees.ListCheckpoints(
            worktree_pb2.ListCheckpointsRequest(session="made"), metadata=client.metadata
        )
        number = found.checkpoints[0].number
        assert f"rametctl rewind --files-only made {number}`" in words
        assert "index.lock" in words
        Path(git(tree, "rev-parse", "--git-path", "index.lock")).unlink()
        request = worktree_pb2.RewindSessionRequest(session="made", checkpoint=str(number))
        back = await client.worktrees.RewindSession(request, metadata=client.metadata)
        assert git(tree, "show", f"{back.before.commit}:own") == "edited since"
    assert git(tree, "status", "--porcelain").split() == ["??", "draft"]
    assert (tree / "draft").read_text() == "mine\n"
    daemon.kill()
