"""The worktrees of queues: not treated as work, removed when idle, and reported while a check runs
in them."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from ramet.v1 import repo_pb2, session_pb2, terminal_pb2, worktree_pb2
from rametd.git import Git, RepositoryInfo

from tests.support.daemon import Client, Sandbox, git
from tests.support.eventually import eventually
from tests.support.landing import CHECKING, LANDED, Landings, with_work
from tests.support.repositories import Sample

pytestmark = pytest.mark.own_changes("one.txt", "two.txt", "index", "what the index says", "HEAD at", "reflog")
DAY_S = 86400


async def land(client: Client, repository: Path, name: str) -> None:
    await with_work(client, repository, name)
    await Landings(client).land(name, check=["true"])
    landed = (await Landings(client).wait(name))[name]
    assert landed.state == LANDED, landed.reason


def trees(sandbox: Sandbox) -> list[str]:
    return [str(path) for path in (sandbox.root / "state" / "worktrees").glob("*/landing-*")]


async def collect(client: Client, *, dry_run: bool) -> list[worktree_pb2.Garbage]:
    answer = await client.worktrees.CollectGarbage(worktree_pb2.CollectGarbageRequest(dry_run=dry_run))
    return [item for item in answer.items if item.kind == "worktree"]


async def test_a_repository_that_is_forgotten_takes_them_along(
    client: Client, sandbox: Sandbox, repository: Path
) -> None:
    await land(client, repository, "one")
    assert len(trees(sandbox)) == 1
    await client.sessions.DeleteSession(session_pb2.DeleteSessionRequest(session="one"), metadata=client.metadata)
    await client.worktrees.EmptyTrash(worktree_pb2.EmptyTrashRequest(), metadata=client.metadata)

    await client.repos.RemoveRepo(repo_pb2.RemoveRepoRequest(repo="repo"), metadata=client.metadata)

    assert trees(sandbox) == []
    assert len(git(repository, "worktree", "list").splitlines()) == 1


async def test_the_worktree_of_an_idle_queue_is_removed_and_created_again(
    client: Client, sandbox: Sandbox, repository: Path
) -> None:
    await land(client, repository, "one")
    assert await collect(client, dry_run=True) == []
    found = (await client.worktrees.Diagnose(worktree_pb2.DiagnoseRequest())).findings
    assert [each for each in found if "landing-" in each.subject] == []
    with closing(sqlite3.connect(sandbox.root / "state" / "ramet.db")) as db, db:
        db.execute("UPDATE landings SET update_time = update_time - ?", (8 * DAY_S,))

    (old,) = await collect(client, dry_run=True)
    assert ([old.name], old.verdict, old.removed) == (trees(sandbox), "stale", False)
    assert old.reason == "unused for 8 days"
    (gone,) = await collect(client, dry_run=False)
    assert (gone.name, gone.removed, trees(sandbox)) == (old.name, True, [])

    await land(client, repository, "two")
    assert trees(sandbox) == [old.name]


async def test_one_in_which_a_check_runs_stays_and_its_output_can_be_followed(
    client: Client, sandbox: Sandbox, repository: Path
) -> None:
    gate = sandbox.root / "gate"
    gate.touch()
    await with_work(client, repository, "one")
    await Landings(client).land("one", check=[f"echo begun; while [ -e {gate} ]; do sleep 0.05; done"])

    async def checked_by() -> str:
        return (await Landings(client).reach("one", CHECKING)).check_command_id

    command = await eventually(checked_by)
    output = client.terminals.WatchOutput(
        terminal_pb2.WatchOutputRequest(command=command, follow=True), metadata=client.metadata
    )
    async for piece in output:
        if b"begun" in piece.data.splitlines():
            break
    output.cancel()
    assert await collect(client, dry_run=False) == []
    assert len(trees(sandbox)) == 1

    gate.unlink()
    landed = (await Landings(client).wait("one"))["one"]
    assert (landed.state, landed.check_command_id) == (LANDED, command)


async def test_queues_of_two_daemons_have_trees_of_one_name_in_a_repository(
    git: Git,
    repo: RepositoryInfo,
    sample: Sample,
    tmp_path: Path,
) -> None:
    places = [tmp_path / state / "landing-0123456789" for state in ("one", "other")]
    for _ in range(2):
        for place in places:
            place.parent.mkdir(exist_ok=True)
            async with git.landing.tree(repo, place, sample.head) as tree:
                assert tree.path == place
    await git.landing.remove_tree(repo, places[0])
    async with git.landing.tree(repo, places[1], sample.head):
        assert not places[0].exists()
