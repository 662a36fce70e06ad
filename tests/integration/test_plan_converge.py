"""Pull requests of a plan: the real git with a bare repository as remote, and the real `gh` with a
scripted GitHub."""

import uuid
from pathlib import Path

import pytest
from ramet.v1 import plan_pb2, session_pb2

from tests.support.daemon import IDLE, Client, Sandbox, connected, daemon_process, git
from tests.support.github import GitHubModel, log_in, need_gh, serving, with_remote

pytestmark = pytest.mark.full

need_gh()

PLAN = """\
[plan]
title = "{position}/{total}: {goal}"
draft = false
[[threads]]
id = "a"
goal = "First"
owns = ["a/"]
[[threads]]
id = "b"
goal = "Second"
owns = ["b/"]
after = ["a"]
[[threads]]
id = "c"
goal = "Third"
owns = ["c/"]
"""


async def apply(client: Client, path: Path, text: str) -> list[session_pb2.Session]:
    request = plan_pb2.ApplyPlanRequest(path=str(path), text=text, file=str(path / "plan.toml"))
    return list((await client.plans.ApplyPlan(request, metadata=client.metadata)).sessions)


async def converge(client: Client, path: Path) -> list[tuple[str, str, str]]:
    request = plan_pb2.ConvergePlanRequest(path=str(path), request_id=str(uuid.uuid4()))
    answer = await client.plans.ConvergePlan(request, metadata=client.metadata)
    assert answer.failed == sum(step.action == "failed" for step in answer.steps), answer
    return [(step.thread, step.base, step.action) for step in answer.steps]


def commit(session: session_pb2.Session, text: str) -> None:
    tree = Path(session.worktree)
    (tree / f"{session.thread}.txt").write_text(text)
    git(tree, "add", "-A")
    git(tree, "commit", "-qm", text)


async def test_pull_requests_are_opened_in_order_and_only_what_differs_is_changed(sandbox: Sandbox) -> None:
    socket = sandbox.root / "github.sock"
    log_in(sandbox.root / "config" / "gh", socket)
    path, bare = with_remote(sandbox, "shop")
    github = GitHubModel(bare)
    with daemon_process(sandbox), serving(github, socket):
        async with connected(sandbox) as client:
            a, b, c = await apply(client, path, PLAN)
            for session in (a, b, c):
                await client.reach(session.name, IDLE)  # the pull request's text about turns is current
                commit(session, "one")

            assert await converge(client, path) == [
                ("a", "main", "opened"),
                ("b", a.branch, "opened"),
                ("c", "main", "opened"),
            ]
            assert [(pull.title, pull.base, pull.draft) for pull in github.pulls] == [
                ("1/3: First", "main", False),
                ("2/3: Second", a.branch, False),
                ("3/3: Third", "main", False),
            ]
            before = len(github.calls("POST", "/pulls")) + len(github.calls("PATCH"))
            assert {action for _, _, action in await converge(client, path)} == {"unchanged"}
            assert len(github.calls("POST", "/pulls")) + len(github.calls("PATCH")) == before

            # If one fails, the next stays based on its branch.
            commit(a, "more")
            other = git(path, "commit-tree", "HEAD^{tree}", "-m", "somebody else's")
            git(path, "push", "-q", "-f", str(bare), f"{other}:refs/heads/{a.branch}")
            assert (await converge(client, path))[:2] == [("a", "main", "failed"), ("b", a.branch, "unchanged")]
            git(path, "push", "-q", "-f", str(bare), f"{a.branch}:refs/heads/{a.branch}")

            # One is merged, one gets another title, one another commit: the chain closes up.
            github.merge(github.pulls[0].number)
            await apply(client, path, PLAN.replace("Second", "Then"))
            commit(c, "two")
            assert await converge(client, path) == [
                ("a", "main", "landed"),
                ("b", "main", "updated"),
                ("c", "main", "pushed"),
            ]
            assert [(pull.title, pull.base) for pull in github.pulls[1:]] == [
                ("2/3: Then", "main"),
                ("3/3: Third", "main"),
            ]
            assert github.tip(c.branch) == git(Path(c.worktree), "rev-parse", "HEAD")
