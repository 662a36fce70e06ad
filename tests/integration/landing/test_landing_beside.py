"""Work that lands on a branch that another session has checked out, while other operations use that
session's files."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from ramet.v1 import worktree_pb2

from tests.support.daemon import Client, Sandbox, git
from tests.support.eventually import eventually
from tests.support.landing import LANDED, WAITING, Landings, with_work

pytestmark = pytest.mark.full


def held(sandbox: Sandbox, repository: Path, tree: Path) -> tuple[Path, Path]:
    """Make git wait when it writes ``slow.txt`` in that tree while the first of two files exists;
    the second one signals that it waits."""
    gate, begun = sandbox.root / "gate", sandbox.root / "begun"
    (repository / ".git/info/attributes").write_text("slow.txt filter=slow\n")
    wait = f"touch {begun}; while [ -e {gate} ]; do sleep 0.05; done"
    git(repository, "config", "filter.slow.smudge", f'if [ "$PWD" = {tree} ] && [ -e {gate} ]; then {wait}; fi; cat')
    gate.touch()
    return gate, begun


async def sync(client: Client, _checkpoint: str) -> Any:
    return await client.worktrees.SyncSession(worktree_pb2.SyncSessionRequest(session="holder", base_ref="newer"))


async def rewind(client: Client, checkpoint: str) -> Any:
    return await client.worktrees.RewindSession(
        worktree_pb2.RewindSessionRequest(session="holder", checkpoint=checkpoint)
    )


@pytest.mark.own_changes(".git/config", ".git/info/attributes")
@pytest.mark.parametrize("hand", [sync, rewind])
async def test_nothing_lands_in_a_tree_whose_files_are_in_other_hands(
    sandbox: Sandbox,
    client: Client,
    repository: Path,
    landings: Landings,
    hand: Callable[[Client, str], Awaitable[Any]],
) -> None:
    git(repository, "branch", "release", "main")
    holder = await client.create(repository, name="holder", existing_branch="release")
    tree = Path(holder.worktree)
    (tree / "slow.txt").write_text("slow\n")
    # Its number is 2 if the start's checkpoint was created before the file was written.
    made = await client.worktrees.CreateCheckpoint(worktree_pb2.CreateCheckpointRequest(session="holder"))
    (tree / "slow.txt").unlink()
    newer = await with_work(client, repository, "newer", "slow.txt", base_ref="main")
    git(repository, "branch", "newer", newer.branch)
    await with_work(client, repository, "lands", base_ref="release")
    gate, begun = held(sandbox, repository, tree)
    asked = asyncio.ensure_future(hand(client, str(made.checkpoint.number)))
    await eventually(begun.exists)

    await landings.land("lands", target="release")
    await landings.reach("lands", WAITING, "holder, which has release checked out, is being ")
    assert git(repository, "rev-parse", "release") == git(repository, "rev-parse", "main")
    gate.unlink()
    await asked
    await landings.reach("lands", LANDED)
    assert git(tree, "branch", "--show-current") == "release"
    assert (tree / "lands.txt").exists()
    assert set(git(tree, "status", "--porcelain").split()) <= {"??", "slow.txt"}
