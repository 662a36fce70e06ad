"""Sessions in the merge queue: working, asked to resolve a conflict, archived, removed."""

from pathlib import Path

import grpc
import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from ramet.v1 import session_pb2, worktree_pb2

from tests.crash.scene import rows
from tests.support.agents import script
from tests.support.daemon import IDLE, Client, Sandbox, git
from tests.support.daemon import WAITING as SESSION_WAITING
from tests.support.eventually import eventually
from tests.support.family import approve
from tests.support.landing import (
    CHECKING,
    HELD,
    LANDED,
    QUEUED,
    REMOVED,
    RETURNED,
    WAITING,
    Landings,
    commit,
    subjects,
    with_work,
)


async def test_a_refused_replay_names_the_files_and_advises_a_rebase(
    client: Client, landings: Landings, repository: Path
) -> None:
    await with_work(client, repository, "one", "shared.txt", "other.txt", base_ref="main")
    two = await with_work(client, repository, "two", "shared.txt", base_ref="main")
    await landings.land("one", method="rebase")
    await landings.wait("one")
    await landings.land("two", method="rebase")

    assert (await landings.reach("two", HELD)).returns == 2
    prompts = [event.prompt_queued.prompt for event in await client.log("two") if event.HasField("prompt_queued")]
    assert "  shared.txt\n" in prompts[0].text
    assert "git rebase main" in prompts[0].text
    assert git(Path(two.worktree), "status", "--porcelain") == ""
    assert subjects(repository)[0] == "work of one"


async def test_a_conflict_goes_to_the_agent_then_a_person_and_lands_once_resolved(
    client: Client, landings: Landings, repository: Path, sandbox: Sandbox
) -> None:
    await with_work(client, repository, "one", "shared.txt", base_ref="main")
    two = await with_work(client, repository, "two", "shared.txt", base_ref="main")
    await landings.land("one", "two")
    returned = await landings.reach("two", RETURNED, "shared.txt")
    assert returned.returns == 1

    # The scripted agent says something, and commits nothing, in both of its turns.
    await client.reach("two", IDLE)
    held = await landings.reach("two", HELD, "made no new commit")
    assert held.returns == 2
    git(Path(two.worktree), "merge", "-q", "-X", "ours", "main")
    await landings.retry("two")

    assert (await landings.wait("two"))["two"].state == LANDED
    assert git(repository, "show", "main:shared.txt") == "two"


async def test_a_session_at_work_is_waited_for(client: Client, landings: Landings, repository: Path) -> None:
    ask = {"tool": "Bash", "input": {"command": "true", "description": "x"}}
    session = await client.create(repository, script(ask), name="busy", base_ref="main")
    await client.reach("busy", SESSION_WAITING)
    commit(session, **{"busy.txt": "busy\n"})

    await landings.land("busy")
    await landings.reach("busy", WAITING, "its agent waits for your answer: `rametctl inbox busy`")
    await approve(client, "busy")

    assert (await landings.wait("busy"))["busy"].state == LANDED
    mask = FieldMask(paths=["name"])
    renamed = session_pb2.Session(name="calm")
    await client.sessions.UpdateSession(
        session_pb2.UpdateSessionRequest(session_id=session.id, session=renamed, update_mask=mask)
    )
    with pytest.raises(grpc.aio.AioRpcError, match="calm has landed already"):
        await landings.retry("calm")


async def test_a_session_that_is_removed_leaves_its_queue(client: Client, landings: Landings, repository: Path) -> None:
    await with_work(client, repository, "first", base_ref="main")
    second = await with_work(client, repository, "second", base_ref="main", after=["first"])
    await landings.land("second")
    await landings.reach("second", WAITING)

    await client.sessions.DeleteSession(
        session_pb2.DeleteSessionRequest(session=second.id, force=True), metadata=client.metadata
    )

    assert (await landings.reach("second", REMOVED)).reason == "its session was removed"
    assert QUEUED not in {each.state for each in await landings.list()}


async def test_a_session_removed_during_its_check_does_not_land_and_the_check_ends(
    client: Client, landings: Landings, repository: Path, sandbox: Sandbox
) -> None:
    session = await with_work(client, repository, "slow", base_ref="main")
    await with_work(client, repository, "other", base_ref="main")
    pid = sandbox.root / "pid"
    await landings.land("slow", check=[f"echo $$ > {pid}; sleep 600"])
    await landings.reach("slow", CHECKING)
    await eventually(lambda: pid.exists() and pid.read_text().strip())

    request = session_pb2.DeleteSessionRequest(session=session.id, force=True)
    removed = await client.sessions.DeleteSession(request, metadata=client.metadata)

    assert removed.landing_target == "main"
    (entry,) = await landings.list(include_ended=True)
    assert (entry.state, entry.reason) == (REMOVED, "its session was removed")
    await eventually(lambda: not Path(f"/proc/{pid.read_text().strip()}").exists())
    await landings.land("other")
    assert (await landings.wait("other"))["other"].state == LANDED
    assert subjects(repository)[:2] == ["Merge branch 'ramet/other' into main", "second"]


async def test_a_session_that_is_archived_in_the_queue_lands_from_its_branch(
    client: Client, landings: Landings, repository: Path
) -> None:
    await with_work(client, repository, "first", base_ref="main")
    second = await with_work(client, repository, "second", base_ref="main", after=["first"])
    await landings.land("second")
    await landings.reach("second", WAITING, "waits for first to land")
    await client.sessions.ArchiveSession(session_pb2.ArchiveSessionRequest(session=second.id), metadata=client.metadata)

    await landings.land("first")

    assert (await landings.wait(*(each.id for each in await landings.list())))["second"].state == LANDED


async def test_a_fork_of_landed_work_has_landed_once_its_own_work_has(
    client: Client, landings: Landings, repository: Path, sandbox: Sandbox
) -> None:
    await with_work(client, repository, "one", base_ref="main")
    request = session_pb2.ForkSessionRequest(session="one", name="early", request_id="early")
    early = (await client.sessions.ForkSession(request, metadata=client.metadata)).session
    await landings.land("one")
    await landings.wait("one")
    request = session_pb2.ForkSessionRequest(session="one", name="late", request_id="late")
    late = (await client.sessions.ForkSession(request, metadata=client.metadata)).session
    commit(early, **{"early.txt": "own\n"})

    async def landed() -> dict[str, bool]:
        listed = await client.sessions.ListSessions(session_pb2.ListSessionsRequest(), metadata=client.metadata)
        return {each.name: bool(each.landed_reason) for each in listed.sessions}

    await landings.land("early")
    assert (await landings.wait("early"))["early"].state == LANDED

    async def own() -> bool:
        return await landed() == {"one": True, "early": True, "late": False}

    await eventually(own)
    assert git(Path(late.worktree), "log", "-1", "--format=%s") == "work of one"

    sync = worktree_pb2.SyncSessionRequest(session=late.id, base_ref=early.branch, request_id="sync")
    synced = await client.worktrees.SyncSession(sync, metadata=client.metadata)
    assert synced.commits
    removed = session_pb2.DeleteSessionRequest(session="one", force=True)
    await client.sessions.DeleteSession(removed, metadata=client.metadata)

    async def judged() -> bool:
        return await landed() == {"early": True, "late": False}

    await eventually(judged)
    [(start,)] = rows(sandbox, "SELECT start_commit FROM sessions WHERE name = 'late'")
    assert start == git(Path(late.worktree), "rev-parse", "HEAD"), "it has no commits of its own, as before"
