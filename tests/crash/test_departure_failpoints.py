"""Archiving, bringing back and emptying, killed after each step: the next daemon ends what was begun, and no byte is lost on the way."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from ramet.v1 import session_pb2, worktree_pb2

from tests.crash.scene import delete, rows
from tests.crash.test_failpoints import die_in, start_to_die
from tests.support.agents import script
from tests.support.daemon import Client, DaemonProcess, Sandbox, connected, git
from tests.support.doctor import findings
from tests.support.eventually import eventually

pytestmark = pytest.mark.crash

ARCHIVED = session_pb2.SESSION_STATE_ARCHIVED
Call = Callable[[Client], Awaitable[Any]]


@pytest.fixture
def killed(sandbox: Sandbox) -> DaemonProcess:
    """A daemon that is not started yet: every test arms it first."""
    return DaemonProcess(sandbox)


def archive(client: Client) -> grpc.aio.UnaryUnaryCall[Any, Any]:
    return client.sessions.ArchiveSession(session_pb2.ArchiveSessionRequest(session="one", request_id="archive"))


def restore(client: Client) -> grpc.aio.UnaryUnaryCall[Any, Any]:
    return client.sessions.RestoreSession(session_pb2.RestoreSessionRequest(session="one", request_id="restore"))


async def worked_on(client: Client, repository: Path) -> tuple[session_pb2.Session, Path]:
    made = await client.create(repository, name="one", environment={"ANTHROPIC_API_KEY": "the key"})
    tree = Path(made.worktree)
    (tree / "committed.txt").write_text("committed\n")
    git(tree, "add", "-A")
    git(tree, "commit", "-q", "-m", "committed")
    (tree / "staged.txt").write_text("staged\n")
    git(tree, "add", "-A")
    (tree / "committed.txt").write_text("changed\n")
    (tree / "untracked.txt").write_text("untracked\n")
    own = tree / "own"
    git(tree, "init", "-q", "own")
    git(own, "commit", "-q", "--allow-empty", "-m", "empty")
    (own / "stashed.txt").write_text("stashed\n")
    git(own, "stash", "-q", "--include-untracked")
    return made, tree


def state_of(tree: Path) -> list[str]:
    stashed = git(tree / "own", "show", "--format=", "--name-only", "stash^3")
    return [*git(tree, "status", "--porcelain", "--branch").splitlines(), stashed]


WORKED = ["## ramet/one", " M committed.txt", "A  staged.txt", "?? own/", "?? untracked.txt", "stashed.txt"]


async def no_intents(sandbox: Sandbox) -> None:
    def nothing() -> bool:
        assert rows(sandbox, "SELECT kind FROM intents") == []
        return True

    await eventually(nothing)


async def test_an_archiving_that_is_killed_after_each_step_ends_complete(
    killed: DaemonProcess, sandbox: Sandbox, repository: Path
) -> None:
    killed.start(RAMET_FAILPOINT="archive.intended")
    async with connected(sandbox) as client:
        made, tree = await worked_on(client, repository)
    await die_in(killed, sandbox, archive)
    for step in ("agent-ended", "kept", "tree-removed"):
        start_to_die(killed, f"archive.{step}")
        assert rows(sandbox, "SELECT kind FROM intents") == [("archive",)]
    killed.start()

    async with connected(sandbox) as client:
        await client.reach("one", ARCHIVED)
        assert not tree.exists()
        assert rows(sandbox, "SELECT kind FROM intents") == []
        assert (await archive(client)).session.id == made.id  # the answer that the first caller did not get
        await restore(client)
        assert state_of(tree) == WORKED
        assert not (tree.parent / ".kept").exists()
    killed.kill()


async def test_a_restoring_that_is_killed_after_each_step_ends_complete(
    killed: DaemonProcess, sandbox: Sandbox, repository: Path
) -> None:
    killed.start(RAMET_FAILPOINT="restore.intended")
    async with connected(sandbox) as client:
        made, tree = await worked_on(client, repository)
        await archive(client)
    await die_in(killed, sandbox, restore)
    for step in ("tree-made", "stored", "dropped"):
        start_to_die(killed, f"restore.{step}")
        assert rows(sandbox, "SELECT kind FROM intents") == [("restore",)]
    killed.start()

    await no_intents(sandbox)
    async with connected(sandbox) as client:
        assert (await client.get("one")).state == session_pb2.SESSION_STATE_IDLE
        assert state_of(tree) == WORKED
        assert not git(repository, "for-each-ref", "refs/ramet/archive")
        assert (await restore(client)).session.id == made.id
    killed.kill()


async def test_what_is_written_to_a_tree_that_is_being_brought_back_while_no_daemon_runs_stays_and_is_told(
    killed: DaemonProcess, sandbox: Sandbox, repository: Path
) -> None:
    killed.start(RAMET_FAILPOINT="restore.tree-made")
    async with connected(sandbox) as client:
        made, tree = await worked_on(client, repository)
        await archive(client)
    await die_in(killed, sandbox, restore)
    for name in ("committed.txt", "untracked.txt", "since.txt"):
        (tree / name).write_text("theirs, since\n")
    killed.start()

    await no_intents(sandbox)
    for name in ("committed.txt", "untracked.txt", "since.txt"):
        assert (tree / name).read_text() == "theirs, since\n", name
    async with connected(sandbox) as client:
        (words,) = (await restore(client)).warnings
        assert words.startswith("somebody wrote to committed.txt, untracked.txt before all was back")
        assert git(repository, "show", f"refs/ramet/archive/{made.id}:untracked.txt") == "untracked"
        assert [words] in [list(event.session_restored.warnings) for event in await client.log("one")]
    killed.kill()


async def test_a_tree_that_cannot_be_brought_back_after_all_goes_aside_with_what_was_written_to_it(
    killed: DaemonProcess, sandbox: Sandbox, repository: Path
) -> None:
    killed.start(RAMET_FAILPOINT="restore.tree-made")
    async with connected(sandbox) as client:
        made, tree = await worked_on(client, repository)
        await archive(client)
    await die_in(killed, sandbox, restore)
    (tree / "since.txt").write_text("theirs, since\n")
    ref = f"refs/ramet/archive/{made.id}"
    kept = git(repository, "rev-parse", ref)
    git(repository, "update-ref", "-d", ref)
    killed.start()

    await no_intents(sandbox)
    assert not tree.exists()
    async with connected(sandbox) as client:
        (words,) = [told for event in await client.log("one") if (told := event.warning.message)]
        (folder,) = (tree.parent / ".kept" / made.id).glob("tree-*")
        assert f"what was there is in {folder}" in words
        assert (folder / "since.txt").read_text() == "theirs, since\n"
        git(repository, "update-ref", ref, kept)
        await restore(client)
        assert state_of(tree) == WORKED
    killed.kill()


async def test_a_removed_session_that_is_being_brought_back_is_there_once_however_often_that_is_killed(
    killed: DaemonProcess, sandbox: Sandbox, repository: Path
) -> None:
    def bring_back(client: Client) -> grpc.aio.UnaryUnaryCall[Any, Any]:
        return client.worktrees.RestoreTrash(worktree_pb2.RestoreTrashRequest(entry="one", request_id="back"))

    killed.start(RAMET_FAILPOINT="restore.intended")
    async with connected(sandbox) as client:
        made, tree = await worked_on(client, repository)
        await delete(client, "one")
    await die_in(killed, sandbox, bring_back)
    assert rows(sandbox, "SELECT id FROM trash") == [(made.id,)]
    for step in ("tree-made", "stored", "dropped"):
        start_to_die(killed, f"restore.{step}")
    killed.start()

    await no_intents(sandbox)
    async with connected(sandbox) as client:
        assert (await client.get("one")).id == made.id
        assert state_of(tree) == WORKED
        assert rows(sandbox, "SELECT id FROM trash") == []
        assert (await bring_back(client)).session.id == made.id
    killed.kill()


async def test_a_removal_that_is_killed_when_what_git_cannot_store_was_moved_aside_loses_none_of_it(
    killed: DaemonProcess, sandbox: Sandbox, repository: Path
) -> None:
    git(repository, "config", "filter.broken.clean", "false")
    git(repository, "config", "filter.broken.required", "true")
    (repository / ".git" / "info" / "attributes").write_text("secret filter=broken\n")
    killed.start(RAMET_FAILPOINT="remove.moved-aside")
    async with connected(sandbox) as client:
        made, tree = await worked_on(client, repository)
    (tree / "secret").write_text("only here\n")
    await die_in(killed, sandbox, lambda client: delete(client, "one", "remove"))
    assert rows(sandbox, "SELECT kind FROM intents") == [("delete",)]
    assert not tree.exists()
    killed.start()

    await no_intents(sandbox)
    async with connected(sandbox) as client:
        (kept,) = (tree.parent / ".kept" / made.id).glob("tree-*")
        answer = await delete(client, "one", "remove")  # what the first caller did not hear
        assert any(words.endswith(f"is kept at {kept}") for words in answer.warnings)
        back = await client.worktrees.RestoreTrash(worktree_pb2.RestoreTrashRequest(entry="one"))
        assert not back.warnings
        assert (tree / "secret").read_text() == "only here\n"
        assert sorted(state_of(tree)) == sorted([*WORKED, "?? secret"])
        assert not (tree.parent / ".kept").exists()
        assert not git(repository, "for-each-ref", "refs/ramet/trash")
    killed.kill()


async def test_an_emptying_that_is_killed_is_finished_by_the_same_call(
    killed: DaemonProcess, sandbox: Sandbox, repository: Path
) -> None:
    def empty(client: Client) -> grpc.aio.UnaryUnaryCall[Any, Any]:
        return client.worktrees.EmptyTrash(worktree_pb2.EmptyTrashRequest(request_id="empty"))

    killed.start(RAMET_FAILPOINT="trash.dropped")
    async with connected(sandbox) as client:
        made, _ = await worked_on(client, repository)
        await delete(client, "one")
    await die_in(killed, sandbox, empty)
    assert rows(sandbox, "SELECT id FROM trash") == [(made.id,)]
    killed.start()

    async with connected(sandbox) as client:
        assert [entry.id for entry in (await empty(client)).entries] == [made.id]
        assert rows(sandbox, "SELECT id FROM trash") == []
        assert not git(repository, "for-each-ref", "refs/ramet")
        assert not list((sandbox.root / "state").rglob(f"{made.id}.env"))
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
        assert rows(sandbox, "SELECT session_id FROM intents") == [(made.id,)], "git is still waiting for the lock"
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await archive(client)
        assert "is being removed" in str(caught.value.details())
        (told,) = await findings(client)
        assert (told.code, told.severity, told.subject) == ("removal-unfinished", "info", "one")
        assert "goes on since the daemon started" in told.message
        lock.unlink()
        await no_intents(sandbox)
        assert rows(sandbox, "SELECT id FROM sessions") == [(other.id,)]
        assert git(repository, "show", f"refs/ramet/trash/{made.id}:untracked.txt") == "untracked"
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
        await no_intents(sandbox)
        assert state_of(tree) == WORKED
        await client.send("one", script({"text": "on"}))
        done = await client.reach("one", session_pb2.SESSION_STATE_IDLE)
        assert done.id == made.id
        git(repository, "update-ref", "-d", f"refs/ramet/trash/{made.id}/in-the-way")
        await delete(client, "one")
    killed.kill()
