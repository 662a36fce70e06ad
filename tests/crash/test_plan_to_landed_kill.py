"""Apply, push and land plans, and kill the daemon at another failpoint in each round.

Two rounds; ``--crash-rounds 100`` reaches every failpoint several times.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import grpc
import pytest
from ramet.v1 import landing_pb2, plan_pb2

from tests.crash.scene import rows
from tests.crash.test_failpoints import wait_for_death
from tests.support.daemon import Client, DaemonProcess, Sandbox, connected, git
from tests.support.landing import LANDED, Landings, commit, moves

pytestmark = pytest.mark.crash

APPLY = (
    *("create.intended", "create.worktree-made", "create.files-written"),
    *("plan.checked", "plan.storing", "create.inserted", "plan.stored"),
)
CONVERGE = ("pr.intended", "pr.pushed", "converge.pushed", "converge.step")
LAND = ("land.queued", "land.composed", "land.checked", "land.intended", "land.moved", "land.recorded")
CLEAN_UP = ("remove.intended", "remove.trashed", "plan.ended", "plan.cleaned")
POINTS = (*APPLY, *CONVERGE, *LAND, *CLEAN_UP)
STRIDE = 5
"""Step from one round's failpoint to the next: it is coprime to their number, so that all are
reached, of alternating kinds."""
METHODS = ("merge", "squash", "rebase")

Answer = TypeVar("Answer")


def text_of(number: int) -> str:
    threads = "".join(
        f'[[threads]]\nid = "{name}"\nname = "{name}{number}"\ngoal = "Part {name}"\nowns = ["{name}{number}/"]\n'
        for name in ("a", "b")
    )
    return f'[plan]\nname = "plan{number}"\nbase = "main"\n{threads}'


class Round:
    """Run one plan from its file to the target, with one kill; repeat the interrupted call with the
    same request id."""

    def __init__(self, daemon: DaemonProcess, repository: Path, number: int) -> None:
        self._daemon = daemon
        self._sandbox = daemon.sandbox
        self._repository = repository
        self._number = number
        self._names = tuple(f"{name}{number}" for name in ("a", "b"))
        self._died = False
        self.point = POINTS[number * STRIDE % len(POINTS)]

    async def run(self) -> None:
        self._daemon.start(RAMET_FAILPOINT=self.point)
        applied = await self._call(self._apply, self._whole_or_nothing)
        assert [session.name for session in applied.sessions] == list(self._names)
        for session in applied.sessions:
            commit(session, **{f"{session.name}/work.txt": f"{session.name}\n"})
        converged = await self._call(self._converge)
        assert {step.action for step in converged.steps} <= {"pushed", "unchanged"}, converged
        await self._call(self._land)
        landed = await self._call(lambda client: Landings(client).wait(*self._names))
        assert {each.state for each in landed.values()} == {LANDED}
        cleaned = await self._call(self._clean_up)
        assert [step.thread for step in cleaned.steps if not step.removed] == [], cleaned
        if self._died:
            self._daemon.kill()
        else:  # after it has answered
            wait_for_death(self._daemon)

    async def _call(
        self, call: Callable[[Client], Awaitable[Answer]], recovered: Callable[[], None] = lambda: None
    ) -> Answer:
        try:
            async with connected(self._sandbox) as client:
                return await call(client)
        except grpc.aio.AioRpcError as error:
            if error.code() != grpc.StatusCode.UNAVAILABLE or self._died:
                raise
        wait_for_death(self._daemon)
        self._died = True
        self._daemon.start()
        recovered()
        async with connected(self._sandbox) as client:
            return await call(client)

    def _whole_or_nothing(self) -> None:
        query = "SELECT count(*) FROM {} WHERE name IN ('{}', '{}')"
        counts = [rows(self._sandbox, query.format(table, *self._names)) for table in ("sessions", "plan_threads")]
        assert counts in ([[(0,)], [(0,)]], [[(2,)], [(2,)]])
        trees = len(git(self._repository, "worktree", "list").splitlines()) - 1
        branches = len(git(self._repository, "branch", "--list", "ramet/*").splitlines())
        whole = counts[0] == [(2,)]
        assert (trees - self._landing_trees(), branches) == ((2, 2) if whole else (0, 0))

    def _landing_trees(self) -> int:
        return git(self._repository, "worktree", "list").count("/landing-")

    async def _apply(self, client: Client) -> plan_pb2.ApplyPlanResponse:
        request = plan_pb2.ApplyPlanRequest(
            path=str(self._repository), text=text_of(self._number), request_id=self._id("apply")
        )
        return await client.plans.ApplyPlan(request, metadata=client.metadata)

    async def _converge(self, client: Client) -> plan_pb2.ConvergePlanResponse:
        request = plan_pb2.ConvergePlanRequest(
            path=str(self._repository), plan=f"plan{self._number}", request_id=self._id("converge")
        )
        return await client.plans.ConvergePlan(request, metadata=client.metadata)

    async def _land(self, client: Client) -> list[landing_pb2.Landing]:
        fields: dict[str, Any] = {"method": METHODS[self._number % 3], "check": ["true"]}
        return await Landings(client).land(*self._names, request_id=self._id("land"), **fields)

    async def _clean_up(self, client: Client) -> plan_pb2.CleanUpPlanResponse:
        request = plan_pb2.CleanUpPlanRequest(
            path=str(self._repository), plan=f"plan{self._number}", request_id=self._id("clean")
        )
        return await client.plans.CleanUpPlan(request, metadata=client.metadata)

    def _id(self, what: str) -> str:
        return f"{what}-{self._number}"


@pytest.mark.timeout(3600)
async def test_no_plan_is_half_there_no_target_moves_twice_and_no_entry_is_lost(
    sandbox: Sandbox, repository: Path, untouched: Callable[[Path], None], request: pytest.FixtureRequest
) -> None:
    remote = sandbox.root / "remote.git"
    git(sandbox.root, "init", "-q", "--bare", str(remote))
    git(repository, "remote", "add", "origin", str(remote))
    git(repository, "push", "-q", "origin", "main")
    git(repository, "checkout", "-qb", "mine")
    (repository / "dir0" / "file0.txt").write_text("changed\n")
    untouched(repository)
    daemon = DaemonProcess(sandbox)
    rounds = request.config.getoption("--crash-rounds") or 2

    for number in range(rounds):
        each = Round(daemon, repository, number)
        print(f"round {number}: {each.point}", flush=True)
        await each.run()

    assert rows(sandbox, "SELECT state, count(*) FROM landings GROUP BY state") == [("landed", 2 * rounds)]
    assert rows(sandbox, "SELECT count(*) FROM sessions") == [(0,)]
    daemon.start()
    async with connected(sandbox) as client:
        moved = [event.target_moved for event in await client.log() if event.HasField("target_moved")]
    assert len({each.new_commit for each in moved}) == len(moved) == moves(repository)
    assert rows(sandbox, "SELECT kind FROM operations") == []
    for number in range(rounds):
        for name in ("a", "b"):
            path = f"{name}{number}/work.txt"
            made = git(
                repository,
                "log",
                "--first-parent",
                "--diff-merges=first-parent",
                "-s",
                "--format=%H",
                "main",
                "--",
                path,
            )
            assert len(made.splitlines()) == 1
    assert len(git(remote, "branch", "--list", "ramet/*").splitlines()) == 2 * rounds
    daemon.kill()
