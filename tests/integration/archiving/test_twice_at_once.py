"""Calls that read a session before another call has changed it."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from ramet.v1 import session_pb2, worktree_pb2
from rametd.domain.operations import Operation
from rametd.services.operations import Admit, Operations

from tests.support.archiving import archive
from tests.support.daemon import Client, git
from tests.support.family import refusal

pytestmark = pytest.mark.full


@pytest.fixture
def first(monkeypatch: pytest.MonkeyPatch) -> Callable[[Awaitable[Any], Callable[[], Awaitable[Any]]], Awaitable[Any]]:
    """Make a call that has read the session, and that begins only after ``meanwhile``."""
    run = Operations.run

    async def make(call: Awaitable[Any], meanwhile: Callable[[], Awaitable[Any]]) -> asyncio.Future[Any]:
        looked, done = asyncio.Event(), asyncio.Event()

        async def late(self: Operations, wanted: Operation, admit: Admit) -> Any:
            if not looked.is_set():
                looked.set()
                await done.wait()
            return await run(self, wanted, admit)

        monkeypatch.setattr(Operations, "run", late)
        asked = asyncio.ensure_future(call)
        await looked.wait()
        await meanwhile()
        done.set()
        return asked

    return make


async def test_a_concurrent_archive_is_refused(
    client: Client, repository: Path, first: Callable[..., Awaitable[Any]]
) -> None:
    made = await client.create(repository, name="one")
    (Path(made.worktree) / "draft").write_text("mine\n")

    asked = await first(archive(client, "one"), lambda: archive(client, "one"))

    reason, words = await refusal(asked)
    assert (reason, "archived already" in words) == ("WRONG_STATE", True)
    assert git(repository, "show", f"refs/ramet/archive/{made.id}:files/draft") == "mine"


async def test_a_concurrent_restore_is_refused(
    client: Client, repository: Path, first: Callable[..., Awaitable[Any]]
) -> None:
    made = await client.create(repository, name="one")
    tree = Path(made.worktree)
    (tree / "draft").write_text("mine\n")
    await archive(client, "one")
    request = session_pb2.RestoreSessionRequest(session="one")

    async def bring_back_and_edit() -> None:
        await client.sessions.RestoreSession(request)
        (tree / "draft").write_text("edited since\n")

    asked = await first(client.sessions.RestoreSession(request), bring_back_and_edit)

    reason, words = await refusal(asked)
    assert (reason, "was restored already" in words) == ("WRONG_STATE", True)
    assert (tree / "draft").read_text() == "edited since\n"


async def test_a_concurrent_restore_from_the_trash_happens_once(
    client: Client, repository: Path, first: Callable[..., Awaitable[Any]]
) -> None:
    made = await client.create(repository, name="one")
    await client.sessions.DeleteSession(session_pb2.DeleteSessionRequest(session="one", force=True))
    request = worktree_pb2.RestoreTrashRequest(entry=made.id)

    asked = await first(client.worktrees.RestoreTrash(request), lambda: client.worktrees.RestoreTrash(request))

    assert (await refusal(asked))[0] == "TRASH_ENTRY_NOT_FOUND"
    assert [each.id for each in await sessions(client)] == [made.id]


async def sessions(client: Client) -> list[session_pb2.Session]:
    return list((await client.sessions.ListSessions(session_pb2.ListSessionsRequest())).sessions)
