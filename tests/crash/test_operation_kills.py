"""Kill the daemon at every step of every kind of operation, and check what the next daemon makes of
it.

One table of kinds and steps. Each kind runs through all of its steps in one test: the daemon that
recovers from one kill is killed at the next step. Then the operation must be complete, or undone
and done by the repeated call; the same request id must get the same answer; no operation may be
left; the session's work must exist, byte for byte; and the agent of another session must be the
same process.
"""

import contextlib
import json
import re
import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
import rametd
from ramet.v1 import landing_pb2, session_pb2, worktree_pb2
from rametd.domain.operations import Kind

from tests.crash.scene import WORKED, check_prompts, leave_work, operations, rows, settle_down, the_pid, work_in
from tests.support.agents import script
from tests.support.daemon import WORKING, Client, DaemonProcess, Sandbox, connected, git
from tests.support.eventually import eventually
from tests.support.github import GitHubModel, log_in, need_gh, serving, with_remote
from tests.support.landing import LANDED, Landings, moves, with_work

pytestmark = pytest.mark.crash

CREATED = script({"text": "made"})


@dataclass
class Scene:
    """Environment of a case. ``one`` is the session that the operation changes; another session's
    agent works beside it."""

    sandbox: Sandbox
    repository: Path
    one: session_pb2.Session

    @property
    def tree(self) -> Path:
        return Path(self.one.worktree)

    def work(self) -> list[str]:
        return work_in(self.tree)


Prepare = Callable[[Client, Scene], Awaitable[None]]
Call = Callable[[Client, Scene], Awaitable[Any]]
Check = Callable[[Client, Scene, Any], Awaitable[None]]


@dataclass(frozen=True)
class Case:
    """``steps`` are failpoints in order. At those with a ``~`` a recovering daemon is killed; with
    ``recovers`` at all but the first.

    At all others the repeated call runs into the failpoint, as recovery undoes the operation.
    """

    name: str
    steps: str
    call: Call
    check: Check
    prepare: Prepare | None = None
    recovers: bool = False
    kind: str = ""

    @property
    def points(self) -> list[tuple[str, bool]]:
        """Failpoints, and whether recovery runs into them."""
        steps = self.steps.split()
        named = [step.strip("~") if "." in step else f"{self.kind or self.name}.{step.strip('~')}" for step in steps]
        return [
            (name, step.startswith("~") or (self.recovers and number > 0))
            for number, (name, step) in enumerate(zip(named, steps, strict=True))
        ]


async def work_on(client: Client, scene: Scene) -> None:
    leave_work(scene.tree)


# ── archive, remove, restore, drop ────────────────────────────────────────────────────────────────


async def archive(client: Client, scene: Scene) -> Any:
    return await client.sessions.ArchiveSession(session_pb2.ArchiveSessionRequest(session="one", request_id="the one"))


async def restore(client: Client, scene: Scene, request_id: str = "the one") -> Any:
    return await client.sessions.RestoreSession(session_pb2.RestoreSessionRequest(session="one", request_id=request_id))


async def remove(client: Client, scene: Scene, request_id: str = "the one") -> Any:
    return await client.sessions.DeleteSession(
        session_pb2.DeleteSessionRequest(session="one", force=True, request_id=request_id)
    )


async def restore_trash(client: Client, scene: Scene, request_id: str = "the one") -> Any:
    return await client.worktrees.RestoreTrash(worktree_pb2.RestoreTrashRequest(entry="one", request_id=request_id))


async def empty_trash(client: Client, scene: Scene) -> Any:
    return await client.worktrees.EmptyTrash(worktree_pb2.EmptyTrashRequest(request_id="the one"))


async def archived(client: Client, scene: Scene) -> None:
    await work_on(client, scene)
    await client.sessions.ArchiveSession(session_pb2.ArchiveSessionRequest(session="one"))


async def removed(client: Client, scene: Scene) -> None:
    await work_on(client, scene)
    await remove(client, scene, "")


async def at_work(client: Client, scene: Scene) -> None:
    await work_on(client, scene)
    await client.send("one", script({"hang": True}))
    await client.reach("one", WORKING)


async def is_archived(client: Client, scene: Scene, answer: Any) -> None:
    assert answer.session.state == session_pb2.SESSION_STATE_ARCHIVED
    assert not scene.tree.exists()
    await restore(client, scene, "")
    assert scene.work() == WORKED


async def is_removed(client: Client, scene: Scene, answer: Any) -> None:
    assert the_pid(scene.sandbox, scene.one.conversation_id) == 0
    assert rows(scene.sandbox, "SELECT name FROM sessions") == [("other",)]
    assert rows(scene.sandbox, "SELECT id FROM trash") == [(scene.one.id,)]
    assert not scene.tree.exists()
    assert not (await restore_trash(client, scene, "")).warnings
    assert scene.work() == WORKED


async def is_restored(client: Client, scene: Scene, answer: Any) -> None:
    assert (answer.session.id, list(answer.warnings)) == (scene.one.id, [])
    assert (await client.get("one")).state == session_pb2.SESSION_STATE_IDLE
    assert rows(scene.sandbox, "SELECT id FROM trash") == []
    assert not git(scene.repository, "for-each-ref", "refs/ramet/archive", "refs/ramet/trash")
    assert not scene.tree.with_name(f".{scene.tree.name}.shelved").exists()
    assert scene.work() == WORKED


async def is_dropped(client: Client, scene: Scene, answer: Any) -> None:
    assert [entry.id for entry in answer.entries] == [scene.one.id]
    assert rows(scene.sandbox, "SELECT id FROM trash") == []
    assert scene.one.id not in git(scene.repository, "for-each-ref", "refs/ramet")
    assert not list((scene.sandbox.root / "state").rglob(f"{scene.one.id}.env"))


# ── create, fork ──────────────────────────────────────────────────────────────────────────────────


async def create(client: Client, scene: Scene) -> Any:
    return await client.sessions.CreateSession(
        session_pb2.CreateSessionRequest(path=str(scene.repository), name="new", prompt=CREATED, request_id="the one")
    )


async def fork(client: Client, scene: Scene) -> Any:
    return await client.sessions.ForkSession(
        session_pb2.ForkSessionRequest(session="one", name="new", request_id="the one")
    )


async def is_created(client: Client, scene: Scene, answer: Any) -> None:
    session = await settle_down(client, "new")
    await check_prompts(client, scene.sandbox, session, [CREATED])
    assert rows(scene.sandbox, "SELECT name FROM sessions ORDER BY name") == [("new",), ("one",), ("other",)]
    assert git(Path(answer.session.worktree), "status", "--porcelain") == ""
    assert len(git(scene.repository, "worktree", "list").splitlines()) == 4
    assert len(git(scene.repository, "branch", "--list", "ramet/*").splitlines()) == 3


async def is_forked(client: Client, scene: Scene, answer: Any) -> None:
    assert (Path(answer.session.worktree) / "untracked.txt").read_text() == "untracked\n"
    assert (Path(answer.session.worktree) / "committed.txt").read_text() == "changed\n"
    reasons = [each.reason for each in await client.checkpoints("one")]
    assert reasons.count(worktree_pb2.CHECKPOINT_REASON_FORK) == 1, "undone forks leave no checkpoint"
    refs = git(scene.repository, "for-each-ref", "--format=%(refname)", f"refs/ramet/checkpoints/{scene.one.id}")
    assert len(refs.split()) == len(reasons)
    assert scene.work() == WORKED


# ── rewind, sync ──────────────────────────────────────────────────────────────────────────────────


async def rewind(client: Client, scene: Scene) -> Any:
    return await client.worktrees.RewindSession(
        worktree_pb2.RewindSessionRequest(session="one", checkpoint="1", request_id="the one")
    )


async def is_rewound(client: Client, scene: Scene, answer: Any) -> None:
    assert git(scene.tree, "rev-parse", "HEAD") == scene.one.base_commit
    assert git(scene.tree, "diff", "HEAD", "--stat") == ""
    back = worktree_pb2.RewindSessionRequest(session="one", checkpoint=str(answer.before.number))
    await client.worktrees.RewindSession(back)
    assert scene.work() == WORKED


async def base_moves(client: Client, scene: Scene) -> None:
    await work_on(client, scene)
    (scene.repository / "theirs").write_text("the base's\n")
    git(scene.repository, "add", "-A")
    git(scene.repository, "commit", "-qm", "base")


async def sync(client: Client, scene: Scene) -> Any:
    return await client.worktrees.SyncSession(
        worktree_pb2.SyncSessionRequest(session="one", method=worktree_pb2.SYNC_METHOD_MERGE, request_id="the one")
    )


async def is_synced(client: Client, scene: Scene, answer: Any) -> None:
    assert answer.commits == 1
    assert (scene.tree / "theirs").read_text() == "the base's\n"
    assert (await client.get("one")).base_commit == git(scene.repository, "rev-parse", "main")
    assert scene.work() == WORKED


# ── land, open-pull-request ───────────────────────────────────────────────────────────────────────


async def has_commit(client: Client, scene: Scene) -> None:
    git(scene.repository, "checkout", "-qb", "elsewhere")
    (scene.tree / "work.txt").write_text("work\n")
    git(scene.tree, "add", "-A")
    git(scene.tree, "commit", "-qm", "work")


async def land(client: Client, scene: Scene) -> Any:
    landed = await Landings(client).land("one", request_id="the one")
    await Landings(client).wait("one")
    return landed


async def is_landed(client: Client, scene: Scene, answer: Any) -> None:
    assert (await Landings(client).wait("one"))["one"].state == LANDED
    assert git(scene.repository, "show", "main:work.txt") == "work"
    assert moves(scene.repository) == 1


CASES = [
    Case("archive", "intended agent-ended kept tree-removed", archive, is_archived, work_on, recovers=True),
    Case(
        "remove",
        "intended agent-ended trashed worktree-removed processes-destroyed forgotten",
        remove,
        is_removed,
        at_work,
        recovers=True,
    ),
    Case(
        "remove an archived session",
        "intended agent-ended trashed worktree-removed processes-destroyed forgotten",
        remove,
        is_removed,
        archived,
        recovers=True,
        kind="remove",
    ),
    Case("restore", "intended tree-made stored dropped", restore, is_restored, archived, recovers=True),
    Case(
        "restore from the trash",
        "intended tree-made stored dropped",
        restore_trash,
        is_restored,
        removed,
        recovers=True,
        kind="restore",
    ),
    Case("drop", "intended forgotten", empty_trash, is_dropped, removed, recovers=True),
    Case("create", "intended worktree-made files-written inserted", create, is_created),
    Case(
        "fork",
        "checkpoint.fork-kept kept ~dropped create.intended create.worktree-made create.files-written create.inserted",
        fork,
        is_forked,
        work_on,
    ),
    Case(
        "rewind",
        "intended agent-ended checkpoint.rewind-kept kept files-written branch-moved recorded",
        rewind,
        is_rewound,
        work_on,
        recovers=True,
    ),
    Case("sync", "intended checkpoint.sync-kept kept synced", sync, is_synced, base_moves),
    Case("land", "queued composed checked intended moved recorded", land, is_landed, has_commit, recovers=True),
]


async def die_at(daemon: DaemonProcess, scene: Scene, point: str, case: Case, *, calls: bool) -> None:
    """Start a daemon that is killed at ``point``: in the case's call, or by itself while it
    recovers."""
    daemon.start(wait=calls, RAMET_FAILPOINT=point)
    if calls:
        async with connected(scene.sandbox) as client:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await case.call(client, scene)
            assert caught.value.code() == grpc.StatusCode.UNAVAILABLE, f"{point}: {caught.value.details()}"
    assert daemon.process is not None
    assert daemon.process.wait(timeout=30) == -9, (point, (scene.sandbox.root / "rametd.out").read_text())


async def sweep(daemon: DaemonProcess, scene: Scene, case: Case) -> None:
    """Kill a daemon at each step of the case, then check what the last daemon made of it."""
    for point, by_itself in case.points:
        await die_at(daemon, scene, point, case, calls=not by_itself)
    daemon.start()
    async with connected(scene.sandbox) as client:
        answer = await case.call(client, scene)
        assert await case.call(client, scene) == answer

        def finished() -> bool:
            assert operations(scene.sandbox) == []
            return True

        await eventually(finished)
        await case.check(client, scene, answer)
    daemon.kill()


SMOKE = {"archive", "create", "land"}


@pytest.mark.parametrize(
    "case", [pytest.param(case, id=case.name, marks=[pytest.mark.smoke] * (case.name in SMOKE)) for case in CASES]
)
async def test_an_operation_that_is_killed_at_every_step_is_completed_or_undone(
    case: Case, sandbox: Sandbox, repository: Path
) -> None:
    daemon = DaemonProcess(sandbox)
    daemon.start()
    async with connected(sandbox) as client:
        one = await client.create(repository, name="one", base_ref="main")
        await eventually(lambda: client.checkpoints("one"))
        other = await client.create(repository, script({"hang": True}), name="other")
        await client.reach("other", WORKING)
        scene = Scene(sandbox, repository, one)
        if case.prepare is not None:
            await case.prepare(client, scene)
    daemon.kill()
    agent = the_pid(sandbox, other.conversation_id)
    assert agent

    await sweep(daemon, scene, case)

    assert the_pid(sandbox, other.conversation_id) == agent, "the agent of another session keeps running"


GONE = {
    Kind.FORK: {"checkpoint": "c"},
    Kind.REMOVE: {"force": "yes"},
    Kind.ARCHIVE: {},
    Kind.DROP: {},
    Kind.REWIND: {"checkpoint": "c", "files_only": ""},
    Kind.SYNC: {"commit": "c", "base": "main", "ref": "main", "rebase": "", "ask_agent": ""},
    Kind.PULL_REQUEST: {"commit": "c", "remote": "origin"},
}
"""Insert operations of unknown sessions, as in a database restored from a copy."""


async def test_operations_of_sessions_that_are_gone_end_and_hold_nothing_up(sandbox: Sandbox, repository: Path) -> None:
    daemon = DaemonProcess(sandbox)
    daemon.start()
    async with connected(sandbox) as client:
        await client.create(repository, name="one")
    daemon.kill()
    with contextlib.closing(sqlite3.connect(sandbox.root / "state" / "ramet.db")) as db, db:
        db.executemany(
            "INSERT INTO operations (id, kind, session_id, data, create_time, update_time) VALUES (?, ?, ?, ?, 1, 1)",
            [(kind, kind, f"gone-{kind}", json.dumps(data)) for kind, data in GONE.items()],
        )

    daemon.start()

    def ended() -> bool:
        assert operations(sandbox) == []
        return True

    await eventually(ended)
    async with connected(sandbox) as client:
        await client.send("one", script({"text": "goes on"}))
        await settle_down(client, "one")
    daemon.kill()


# ── pull requests need gh, and a remote ───────────────────────────────────────────────────────────


@pytest.fixture
def github(sandbox: Sandbox) -> Iterator[GitHubModel]:
    need_gh()
    _, bare = with_remote(sandbox, "shop")
    socket = sandbox.root / "github.sock"
    log_in(sandbox.root / "config" / "gh", socket)
    model = GitHubModel(bare)
    with serving(model, socket):
        yield model


async def open_pull_request(client: Client, scene: Scene) -> Any:
    return await client.landing.CreatePullRequest(
        landing_pb2.CreatePullRequestRequest(session="one", request_id="the one")
    )


async def test_a_pull_request_whose_opening_is_killed_at_every_step_is_opened_once(
    sandbox: Sandbox, github: GitHubModel
) -> None:
    async def is_opened(client: Client, scene: Scene, answer: Any) -> None:
        (pull,) = github.pulls
        assert answer.pull_request.number == pull.number
        assert answer.pull_request.commit == github.tip(scene.one.branch)

    case = Case("pull-request", "intended pushed opening opened", open_pull_request, is_opened, kind="pr")
    daemon = DaemonProcess(sandbox)
    daemon.start()
    async with connected(sandbox) as client:
        scene = Scene(sandbox, sandbox.root / "shop", await with_work(client, sandbox.root / "shop", "one"))
    daemon.kill()

    await sweep(daemon, scene, case)


# ── the table is complete ─────────────────────────────────────────────────────────────────────────

ELSEWHERE = frozenset({"archive.recorded", "create.claimed"})
"""Failpoints with a separate setup: a lost database, a spare."""


@pytest.mark.smoke
def test_the_table_has_every_step_of_every_kind() -> None:
    assert {case.kind or case.name for case in CASES} == set(Kind) - {Kind.PULL_REQUEST}, "which has its own test"
    points = {point for case in CASES for point, _ in case.points}
    kinds = {point.partition(".")[0] for point in points} - {"checkpoint"}
    source = "\n".join(path.read_text() for path in Path(rametd.__path__[0]).rglob("*.py"))
    hit = {point for point in re.findall(r'hit\("([a-z]+\.[a-z-]+)"\)', source) if point.partition(".")[0] in kinds}
    assert hit - points == ELSEWHERE
