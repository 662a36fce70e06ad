"""Archive, restore and empty, killed after each step: the next daemon completes the operation, and
no byte is lost."""

import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from ramet.v1 import session_pb2

from tests.crash.scene import WORKED, delete, leave_work, rows, work_in
from tests.crash.test_failpoints import die_in
from tests.support.agents import script
from tests.support.daemon import Client, DaemonProcess, Sandbox, connected, git
from tests.support.doctor import findings
from tests.support.eventually import eventually

pytestmark = pytest.mark.crash

ARCHIVED = session_pb2.SESSION_STATE_ARCHIVED
Call = Callable[[Client], Awaitable[Any]]


@pytest.fixture
def killed(sandbox: Sandbox) -> DaemonProcess:
    """Yield a daemon that is not started: every test arms it first."""
    return DaemonProcess(sandbox)


def archive(client: Client) -> grpc.aio.UnaryUnaryCall[Any, Any]:
    return client.sessions.ArchiveSession(session_pb2.ArchiveSessionRequest(session="one", request_id="archive"))


def restore(client: Client) -> grpc.aio.UnaryUnaryCall[Any, Any]:
    return client.sessions.RestoreSession(session_pb2.RestoreSessionRequest(session="one", request_id="restore"))


async def worked_on(client: Client, repository: Path) -> tuple[session_pb2.Session, Path]:
    made = await client.create(repository, name="one", environment={"ANTHROPIC_API_KEY": "the key"})
    tree = Path(made.worktree)
    leave_work(tree)
    return made, tree


async def no_operations(sandbox: Sandbox) -> None:
    def nothing() -> bool:
        assert rows(sandbox, "SELECT kind FROM operations") == []
        return True

    await eventually(nothing)


@pytest.mark.smoke
async def test_restore_keeps_what_was_written_to_the_tree_while_no_daemon_ran(
    killed: DaemonProcess, sandbox: Sandbox, repository: Path
) -> None:
    killed.start(RAMET_FAILPOINT="restore.tree-made")
    async with connected(sandbox) as client:
        _, tree = await worked_on(client, repository)
        await archive(client)
    await die_in(killed, sandbox, restore)
    for name in ("committed.txt", "untracked.txt", "since.txt"):
        (tree / name).write_text("theirs, since\n")
    killed.start()

    await no_operations(sandbox)
    for name in ("committed.txt", "untracked.txt", "since.txt"):
        assert (tree / name).read_text() == "theirs, since\n", name
    async with connected(sandbox) as client:
        assert list((await restore(client)).warnings) == []
    killed.kill()


async def test_a_failed_restore_shelves_the_tree_with_newer_files(
    killed: DaemonProcess, sandbox: Sandbox, repository: Path
) -> None:
    killed.start(RAMET_FAILPOINT="restore.tree-made")
    async with connected(sandbox) as client:
        made, tree = await worked_on(client, repository)
        await archive(client)
    await die_in(killed, sandbox, restore)
    (tree / "since.txt").write_text("theirs, since\n")
    ref = f"refs/ramet/archive/{made.id}"
    before = git(repository, "rev-parse", ref)
    git(repository, "update-ref", "-d", ref)
    killed.start()

    await no_operations(sandbox)
    assert not tree.exists()
    async with connected(sandbox) as client:
        assert (tree.with_name(f".{made.id}.shelved") / "since.txt").read_text() == "theirs, since\n"
        git(repository, "update-ref", ref, before)
        await restore(client)
        assert sorted(work_in(tree)) == sorted([*WORKED, "?? since.txt"])
    killed.kill()


KILLING = """#!/bin/sh
{git} "$@"
case "$*" in *checkout-index*--prefix=*) kill -KILL $(cat {pid});; esac
"""


@pytest.mark.parametrize("undone", [False, True])
async def test_a_restore_killed_while_git_writes_its_files_leaves_none_beside_the_tree(
    killed: DaemonProcess, sandbox: Sandbox, repository: Path, undone: bool
) -> None:
    wrapper, pid = sandbox.root / "wrapper" / "git", sandbox.root / "pid"
    wrapper.parent.mkdir()
    wrapper.write_text(KILLING.format(git=shutil.which("git"), pid=pid))
    wrapper.chmod(0o755)
    killed.start(PATH=f"{wrapper.parent}:{sandbox.environ['PATH']}")
    pid.write_text(str(killed.pid))
    async with connected(sandbox) as client:
        made, tree = await worked_on(client, repository)
        await archive(client)
    await die_in(killed, sandbox, restore)
    assert len(list(tree.parent.glob(f".{made.id}.*"))) == 2
    if undone:
        git(repository, "update-ref", "-d", f"refs/ramet/archive/{made.id}")
    killed.start()

    await no_operations(sandbox)
    kept = [f".{made.id}.shelved"] if undone else [made.id]
    assert [place.name for place in tree.parent.glob(f"*{made.id}*")] == kept
    killed.kill()


async def test_a_removal_that_git_holds_up_does_not_hold_up_the_start_and_ends_beside_it(
    killed: DaemonProcess, sandbox: Sandbox, repository: Path
) -> None:
    killed.start(RAMET_FAILPOINT="remove.agent-ended")
    async with connected(sandbox) as client:
        made, _ = await worked_on(client, repository)
        other = await client.create(repository, script({"hang": True}), name="other")
    await die_in(killed, sandbox, lambda client: delete(client, "one"))
    lock = repository / ".git" / "refs" / "ramet" / "trash" / f"{made.id}.lock"
    lock.parent.mkdir(parents=True)
    lock.touch()

    killed.start()

    async with connected(sandbox) as client:
        await client.reach("other", session_pb2.SESSION_STATE_WORKING)
        assert rows(sandbox, "SELECT session_id FROM operations") == [(made.id,)], "git is still waiting for the lock"
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await archive(client)
        assert "is being removed" in str(caught.value.details())
        (finding,) = await findings(client)
        assert (finding.code, finding.severity, finding.subject) == ("removal-unfinished", "info", "one")
        assert "resumed when the daemon started" in finding.message
        lock.unlink()
        await no_operations(sandbox)
        assert rows(sandbox, "SELECT id FROM sessions") == [(other.id,)]
        assert git(repository, "show", f"refs/ramet/trash/{made.id}:files/untracked.txt") == "untracked"
        await delete(client, "other")
    killed.kill()


async def test_a_removal_that_fails_at_the_start_is_taken_back_and_its_agent_works_on(
    killed: DaemonProcess, sandbox: Sandbox, repository: Path
) -> None:
    killed.start(RAMET_FAILPOINT="remove.intended")
    async with connected(sandbox) as client:
        made, tree = await worked_on(client, repository)
    await die_in(killed, sandbox, lambda client: delete(client, "one"))
    git(repository, "update-ref", f"refs/ramet/trash/{made.id}/in-the-way", "HEAD")
    killed.start()

    async with connected(sandbox) as client:
        await no_operations(sandbox)
        assert work_in(tree) == WORKED
        await client.send("one", script({"text": "on"}))
        done = await client.reach("one", session_pb2.SESSION_STATE_IDLE)
        assert done.id == made.id
        git(repository, "update-ref", "-d", f"refs/ramet/trash/{made.id}/in-the-way")
        await delete(client, "one")
    killed.kill()


@pytest.mark.parametrize("step", ["archive.tree-removed", "archive.recorded"])
async def test_a_database_lost_in_an_archive_loses_nothing_of_the_session(
    killed: DaemonProcess, sandbox: Sandbox, repository: Path, step: str
) -> None:
    killed.start(RAMET_FAILPOINT=step)
    async with connected(sandbox) as client:
        made = await client.create(repository, script({"text": "done"}), name="one")
        await client.reach("one", session_pb2.SESSION_STATE_IDLE)
        (Path(made.worktree) / "untracked.txt").write_text("untracked\n")
    await die_in(killed, sandbox, archive)
    (sandbox.directories.home / "ramet.db").write_bytes(b"no database")
    killed.start()

    async with connected(sandbox) as client:
        session = await client.get("one")
        if session.state != ARCHIVED:
            await archive(client)
        assert list((await restore(client)).warnings) == []
        assert (Path(made.worktree) / "untracked.txt").read_text() == "untracked\n"
        assert (await client.get("one")).turns == 1
        assert await findings(client) == []
    killed.kill()
