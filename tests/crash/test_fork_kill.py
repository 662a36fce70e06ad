"""A fork that is killed at each of its instants is made by the call that is repeated, once, and leaves one checkpoint."""

from pathlib import Path

import pytest
from ramet.v1 import session_pb2

from tests.crash.scene import rows
from tests.crash.test_failpoints import die_in, start_to_die
from tests.support.daemon import Client, DaemonProcess, Sandbox, connected, git
from tests.support.eventually import eventually

pytestmark = pytest.mark.crash


async def fork(client: Client) -> session_pb2.ForkSessionResponse:
    return await client.sessions.ForkSession(session_pb2.ForkSessionRequest(session="one", request_id="the one"))


async def test_a_fork_that_is_killed_leaves_nothing_until_it_is_made(sandbox: Sandbox, repository: Path) -> None:
    daemon = DaemonProcess(sandbox)
    daemon.start()
    async with connected(sandbox) as client:
        made = await client.create(repository, name="one")
        await eventually(lambda: client.checkpoints("one"))
    (Path(made.worktree) / "draft.txt").write_text("a draft\n")
    daemon.kill()

    for step in ("checkpoint.fork-kept", "fork.kept", "create.worktree-made"):
        daemon.start(RAMET_FAILPOINT=step)
        assert rows(sandbox, "SELECT number, reason FROM checkpoints ORDER BY number") == [(1, "start")]
        assert rows(sandbox, "SELECT kind FROM intents") == []
        await die_in(daemon, sandbox, fork)
    start_to_die(daemon, "fork.dropped")
    daemon.start(RAMET_FAILPOINT="create.inserted")
    assert rows(sandbox, "SELECT number, reason FROM checkpoints ORDER BY number") == [(1, "start")]
    await die_in(daemon, sandbox, fork)
    daemon.start()

    async with connected(sandbox) as client:
        answer = await fork(client)
    assert rows(sandbox, "SELECT name FROM sessions WHERE forked_from != ''") == [(answer.session.name,)]
    of_one = "(SELECT id FROM sessions WHERE forked_from = '')"
    kept = rows(sandbox, f"SELECT number, reason FROM checkpoints WHERE session_id = {of_one} ORDER BY number")  # noqa: S608
    assert kept == [(1, "start"), (2, "fork")]
    assert rows(sandbox, "SELECT kind FROM intents") == []
    assert (Path(answer.session.worktree) / "draft.txt").read_text() == "a draft\n"
    listed = git(repository, "for-each-ref", "--format=%(refname)", f"refs/ramet/checkpoints/{made.id}")
    assert [ref.rpartition("/")[2] for ref in listed.split()] == ["1", "2"]
    daemon.kill()
