"""Kill the daemon between a push, the opening of a pull request and their records: none is opened
twice, none is lost."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from ramet.v1 import landing_pb2, session_pb2

from tests.crash.scene import rows
from tests.support.daemon import Client, DaemonProcess, Sandbox, connected, git
from tests.support.eventually import eventually
from tests.support.github import GitHubModel, log_in, need_gh, serving, with_remote

pytestmark = pytest.mark.crash
need_gh()


@pytest.fixture
def github(sandbox: Sandbox) -> Iterator[GitHubModel]:
    _, bare = with_remote(sandbox, "shop")
    socket = sandbox.root / "github.sock"
    log_in(sandbox.root / "config" / "gh", socket)
    model = GitHubModel(bare)
    with serving(model, socket):
        yield model


async def make(sandbox: Sandbox, client: Client, name: str) -> session_pb2.Session:
    session = await client.create(sandbox.root / "shop", name=name, base_ref="main")
    amend(session, "first")
    return session


def amend(session: session_pb2.Session, text: str) -> str:
    """Replace the last commit by another one."""
    tree = Path(session.worktree)
    (tree / "work.txt").write_text(text)
    git(tree, "add", "-A")
    first = git(tree, "rev-parse", "HEAD") == session.base_commit
    git(tree, "commit", "-q", *([] if first else ["--amend"]), "-m", text)
    return git(tree, "rev-parse", "HEAD")


async def create(client: Client, name: str) -> landing_pb2.CreatePullRequestResponse:
    return await client.landing.CreatePullRequest(
        landing_pb2.CreatePullRequestRequest(session=name, request_id=f"create {name}")
    )


async def die_in(daemon: DaemonProcess, sandbox: Sandbox, point: str, call: Any) -> None:
    """Make a call during which the daemon dies at a failpoint."""
    daemon.kill()
    daemon.start(RAMET_FAILPOINT=point)
    async with connected(sandbox) as client:
        with pytest.raises(grpc.aio.AioRpcError):
            await call(client)
    assert daemon.process is not None
    assert daemon.process.wait(timeout=30) == -9


@pytest.mark.smoke
async def test_what_a_killed_daemon_opened_is_found_by_the_next_without_being_asked(
    daemon: DaemonProcess, sandbox: Sandbox, github: GitHubModel
) -> None:
    async with connected(sandbox) as client:
        await make(sandbox, client, "found")
    await die_in(daemon, sandbox, "pr.opened", lambda client: create(client, "found"))
    daemon.start()
    await eventually(lambda: rows(sandbox, "SELECT count(*) FROM operations") == [(0,)])
    assert rows(sandbox, "SELECT number FROM pull_requests") == [(github.pulls[0].number,)]


async def test_what_a_killed_daemon_pushed_is_ours_to_replace(
    daemon: DaemonProcess, sandbox: Sandbox, github: GitHubModel
) -> None:
    """After a kill between the push and its row, a rebased branch must still be pushed, by the
    stored operation."""
    async with connected(sandbox) as client:
        made = await make(sandbox, client, "ours")
        await create(client, "ours")
        pushed = amend(made, "second")
    again = landing_pb2.CreatePullRequestRequest(session="ours", request_id="again")
    await die_in(daemon, sandbox, "pr.pushed", lambda client: client.landing.CreatePullRequest(again))
    assert github.tip(made.branch) == pushed
    third = amend(made, "third")
    daemon.start()
    async with connected(sandbox) as client:
        await client.landing.CreatePullRequest(again)
    assert github.tip(made.branch) == third
    assert len(github.pulls) == 1


async def test_a_cleaning_up_that_is_killed_is_finished_by_the_next(
    daemon: DaemonProcess, sandbox: Sandbox, github: GitHubModel
) -> None:
    async with connected(sandbox) as client:
        made = await make(sandbox, client, "cleans")
        await create(client, "cleans")
        await client.create(sandbox.root / "shop", name="stacked", base_ref=made.branch)
    github.merge(github.pulls[0].number)
    request = landing_pb2.CleanUpPullRequestsRequest(sessions=["cleans"], remote_branches=True, request_id="clean")
    for point in ("pr.archived", "pr.branch-deleted"):
        await die_in(daemon, sandbox, point, lambda client: client.landing.CleanUpPullRequests(request))
    daemon.start()
    async with connected(sandbox) as client:
        (done,) = (await client.landing.CleanUpPullRequests(request)).sessions
    assert done.done
    assert github.tip(made.branch) is None
    assert made.branch not in git(sandbox.root / "shop", "branch", "--format=%(refname:short)")
    assert rows(sandbox, "SELECT state FROM sessions WHERE name = 'cleans'") == [("archived",)]
    assert rows(sandbox, "SELECT base_ref FROM sessions WHERE name = 'stacked'") == [("main",)]
