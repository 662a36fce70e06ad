"""A creation that is interrupted while the store writes its operation."""

import asyncio
import sqlite3
import threading
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from ramet.v1 import worktree_pb2
from rametd.services.creation import creator
from rametd.services.creation.building import Builder, begin

from tests.support.daemon import Sandbox, connected, daemon_here, git, make_sandbox
from tests.support.eventually import eventually

pytestmark = pytest.mark.full


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    with make_sandbox(config="[pool]\nsize = 1\n") as sandbox:
        yield sandbox


@pytest.mark.parametrize("spare", [False, True])
async def test_nothing_is_left_of_one_whose_caller_hangs_up_just_then(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, spare: bool
) -> None:
    """The store completes the write although no caller waits: the operation is stored, and the
    spare's row is gone."""
    in_hand, go_on, undoing = threading.Event(), threading.Event(), asyncio.Event()
    undo = Builder.undo

    def slow(*arguments: Any) -> None:
        in_hand.set()
        assert go_on.wait(20)
        begin(*arguments)

    async def signalled(self: Builder, intent: Any) -> None:
        undoing.set()
        await undo(self, intent)

    repository = sandbox.repository()
    async with daemon_here(sandbox), connected(sandbox) as client:
        if spare:
            await client.create(repository, name="first")
            await client.worktrees.FillPool(worktree_pb2.FillPoolRequest(repo=str(repository)))
        trees = git(repository, "worktree", "list")
        with monkeypatch.context() as patch:
            patch.setattr(creator, "begin", slow)
            patch.setattr(Builder, "undo", signalled)
            creating = asyncio.create_task(client.create(repository, name="cut"))
            await asyncio.to_thread(in_hand.wait, 20)
            creating.cancel()
            with pytest.raises(asyncio.CancelledError):
                await creating
            try:
                await asyncio.wait_for(undoing.wait(), 10)
            finally:
                go_on.set()
        assert await eventually(lambda: operations(sandbox) == [])
        assert "cut" not in git(repository, "branch", "--list", "--all")
        with pytest.raises(grpc.aio.AioRpcError):
            await client.get("cut")
        left = git(repository, "worktree", "list").count("\n")
        assert left <= trees.count("\n"), "the claimed spare is removed too, or replaced"
        assert (await client.create(repository, name="cut")).name == "cut"


def operations(sandbox: Sandbox) -> list[str]:
    database = sqlite3.connect(sandbox.root / "state" / "ramet.db")
    try:
        return [row[0] for row in database.execute("SELECT kind FROM operations")]
    finally:
        database.close()
