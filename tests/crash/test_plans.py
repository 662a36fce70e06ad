"""Kill the daemon during operations on a plan: no plan is applied partially, and the next call
completes the operation."""

import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from ramet.v1 import plan_pb2, session_pb2

from tests.crash.scene import leftovers, rows
from tests.support.daemon import Client, DaemonProcess, Sandbox, connected, git

pytestmark = pytest.mark.crash

PLAN = """\
[plan]
name = "three"
[[threads]]
id = "a"
owns = ["dir0/"]
[[threads]]
id = "b"
owns = ["dir1/"]
after = ["a"]
[[threads]]
id = "c"
owns = ["dir2/"]
"""


@pytest.fixture
def killed(sandbox: Sandbox) -> DaemonProcess:
    """Yield a daemon that is not started: every test arms it first."""
    return DaemonProcess(sandbox)


async def die_in(
    daemon: DaemonProcess,
    point: str,
    call: Callable[[Client], Awaitable[Any]],
    recovered: Callable[[], None] = lambda: None,
) -> None:
    """Start it, check its recovery from the previous kill with ``recovered``, and make a call
    during which it dies."""
    daemon.start(RAMET_FAILPOINT=point)
    recovered()
    async with connected(daemon.sandbox) as client:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(client)
        assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
    assert daemon.process is not None
    assert daemon.process.wait(timeout=30) == -9, (daemon.sandbox.root / "rametd.out").read_text()


def applying(repository: Path, text: str, request_id: str) -> Callable[[Client], Awaitable[plan_pb2.ApplyPlanResponse]]:
    async def call(client: Client) -> plan_pb2.ApplyPlanResponse:
        request = plan_pb2.ApplyPlanRequest(
            path=str(repository), text=text, file=str(repository / "plan.toml"), request_id=request_id
        )
        return await client.plans.ApplyPlan(request, metadata=client.metadata)

    return call


async def listed(client: Client) -> list[str]:
    found = await client.sessions.ListSessions(session_pb2.ListSessionsRequest(), metadata=client.metadata)
    return [session.name for session in found.sessions]


@pytest.mark.smoke
async def test_a_plan_is_applied_completely_or_not_at_all(
    killed: DaemonProcess, sandbox: Sandbox, repository: Path
) -> None:
    call = applying(repository, PLAN, "the one")

    def nothing() -> None:
        assert not leftovers(sandbox, repository)
        assert rows(sandbox, "SELECT count(*) FROM sessions") == [(0,)]
        assert rows(sandbox, "SELECT count(*) FROM plans") == [(0,)]

    for point in ("plan.checked", "create.files-written", "plan.storing", "plan.stored"):
        await die_in(killed, point, call, nothing)
    killed.start()

    async with connected(sandbox) as client:
        assert await listed(client) == ["a", "b", "c"]
        again = await call(client)
        assert [change.action for change in again.changes] == ["create"] * 3
        assert await listed(client) == ["a", "b", "c"]
    killed.kill()


async def test_a_changed_plan_changes_all_that_differs_or_nothing(
    killed: DaemonProcess, sandbox: Sandbox, repository: Path
) -> None:
    killed.start()
    async with connected(sandbox) as client:
        await applying(repository, PLAN, "first")(client)
    killed.kill()
    changed = PLAN.replace("dir0/", "other/").replace("dir1/", "more/") + '[[threads]]\nid = "d"\n'
    owned = 'SELECT owns FROM sessions WHERE name IN ("a", "b") ORDER BY name'

    def as_before() -> None:
        assert rows(sandbox, owned) == [('["dir0/"]',), ('["dir1/"]',)]
        assert rows(sandbox, "SELECT id FROM plan_threads ORDER BY id") == [("a",), ("b",), ("c",)]
        assert rows(sandbox, "SELECT count(*) FROM sessions") == [(3,)]

    for point in ("plan.storing", "plan.stored"):
        await die_in(killed, point, applying(repository, changed, "second"), as_before)

    assert rows(sandbox, owned) == [('["other/"]',), ('["more/"]',)]
    assert rows(sandbox, "SELECT id FROM plan_threads ORDER BY id") == [("a",), ("b",), ("c",), ("d",)]
    assert rows(sandbox, "SELECT count(*) FROM sessions") == [(4,)]


@pytest.mark.own_changes("[ab].txt", ".git/*", "index", "what the index says", "HEAD at", "reflog")
async def test_a_cleanup_that_is_killed_is_finished_by_the_next_and_makes_nothing_anew(
    killed: DaemonProcess, sandbox: Sandbox, repository: Path
) -> None:
    killed.start()
    async with connected(sandbox) as client:
        made = await applying(repository, PLAN, "first")(client)
    killed.kill()
    for session in made.sessions[:2]:
        tree = Path(session.worktree)
        (tree / f"{session.name}.txt").write_text("work\n")
        git(tree, "add", "-A")
        git(tree, "commit", "-qm", session.name)
        git(repository, "merge", "-q", "--no-edit", session.branch)

    async def clean_up(client: Client) -> plan_pb2.CleanUpPlanResponse:
        request = plan_pb2.CleanUpPlanRequest(path=str(repository), request_id=str(uuid.uuid4()))
        return await client.plans.CleanUpPlan(request, metadata=client.metadata)

    for point in ("plan.ended", "remove.trashed", "plan.cleaned"):
        await die_in(killed, point, clean_up)
    killed.start()

    async with connected(sandbox) as client:
        cleaned = await clean_up(client)
        assert [(step.thread, step.removed) for step in cleaned.steps] == [("a", True), ("b", True), ("c", False)]
        assert await listed(client) == ["c"]
        again = await applying(repository, PLAN, "again")(client)
        assert {change.action for change in again.changes} == {"keep"}
    assert rows(sandbox, "SELECT name FROM trash ORDER BY name") == [("a",), ("b",)]
    killed.kill()


@pytest.mark.own_changes(".git/config")
async def test_a_converge_that_is_killed_is_finished_by_the_next(
    killed: DaemonProcess, sandbox: Sandbox, repository: Path
) -> None:
    remote = sandbox.root / "remote.git"
    git(sandbox.root, "init", "-q", "--bare", str(remote))
    git(repository, "remote", "add", "origin", str(remote))
    git(repository, "push", "-q", "origin", "main")
    killed.start()
    async with connected(sandbox) as client:
        made = await applying(repository, PLAN, "first")(client)
    killed.kill()
    for session in made.sessions:
        git(Path(session.worktree), "commit", "-qm", session.name, "--allow-empty")

    async def converge(client: Client, *, dry_run: bool = False) -> list[tuple[str, str, str]]:
        request = plan_pb2.ConvergePlanRequest(path=str(repository), dry_run=dry_run, request_id=str(uuid.uuid4()))
        answer = await client.plans.ConvergePlan(request, metadata=client.metadata)
        return [(step.thread, step.base, step.action) for step in answer.steps]

    for point in ("pr.pushed", "converge.pushed", "converge.step"):
        await die_in(killed, point, converge)
    killed.start()

    async with connected(sandbox) as client:
        a, _, c = await converge(client)
        assert a == ("a", "main", "unchanged")
        assert c == ("c", "main", "pushed")
        assert {action for _, _, action in await converge(client)} == {"unchanged"}
        assert [base for _, base, _ in await converge(client, dry_run=True)] == [
            "main",
            made.sessions[0].branch,
            "main",
        ]
    pushed = git(remote, "branch", "--format=%(refname:short)").split()
    assert pushed == ["main", *(session.branch for session in made.sessions)]
    killed.kill()


@pytest.mark.smoke
async def test_a_contest_is_created_completely_or_not_at_all(
    killed: DaemonProcess, sandbox: Sandbox, repository: Path
) -> None:
    async def call(client: Client) -> session_pb2.CreateSessionResponse:
        request = session_pb2.CreateSessionRequest(
            path=str(repository), name="try", contenders=["", "claude", ""], request_id="the one"
        )
        return await client.sessions.CreateSession(request, metadata=client.metadata)

    def nothing() -> None:
        assert not leftovers(sandbox, repository)
        assert rows(sandbox, "SELECT count(*) FROM sessions") == [(0,)]

    for point in ("create.intended", "create.files-written", "create.inserted"):
        await die_in(killed, point, call, nothing)
    killed.start()
    async with connected(sandbox) as client:
        again = await call(client)
        assert [each.name for each in again.contenders] == await listed(client) == ["try-1", "try-2", "try-3"]
        assert len({each.base_commit for each in again.contenders}) == 1
    killed.kill()
