"""What every client may rely on, whatever it calls: pages, cursors, request ids, roles, errors, and that no secret leaks."""

import asyncio
import json
import os
import shutil
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import psutil
import pytest
import structlog
from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.message import Message
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from ramet.v1 import (
    attention_pb2,
    common_pb2,
    event_pb2,
    landing_pb2,
    plan_pb2,
    repo_pb2,
    session_pb2,
    worktree_pb2,
)
from rametd.api import event as event_api
from rametd.api.roles import allowed
from rametd.domain import errors
from rametd.services.agents.supervisor import Supervisor
from rametd.services.sessions import Sessions
from rametd.services.tokens import Tokens

from tests.support.agents import script
from tests.support.daemon import (
    IDLE,
    WAITING,
    WORKING,
    Client,
    DaemonProcess,
    Sandbox,
    connected,
    daemon_here,
    daemon_process,
    git,
    make_sandbox,
    reason_of,
)
from tests.support.eventually import eventually
from tests.support.github import GitHubModel, add_remote, log_in, serving
from tests.support.landing import Landings, with_work
from tests.support.rpc import RPCS, SERVICES, Rpc

Item = event_pb2.WatchEventsResponse


@pytest.fixture(scope="module")
def running() -> Iterator[DaemonProcess]:
    """One daemon for the tests that leave it as it is; its sandbox has a repository ``repo``."""
    with make_sandbox() as sandbox, daemon_process(sandbox) as daemon:
        sandbox.repository()
        yield daemon


@pytest.fixture
async def shared(running: DaemonProcess) -> AsyncIterator[Client]:
    async with connected(running.sandbox) as client:
        yield client


def repo_of(daemon: DaemonProcess) -> Path:
    return daemon.sandbox.root / "repo"


# ── what is served ───────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def health_of(client: Client, service: str = "") -> int:
    stub: Any = health_pb2_grpc.HealthStub(client.channel)
    return int((await stub.Check(health_pb2.HealthCheckRequest(service=service))).status)


async def test_health_and_reflection_know_every_service(shared: Client) -> None:
    names = [service.full_name for service in SERVICES]
    for name in ("", *names):
        assert await health_of(shared, name) == health_pb2.HealthCheckResponse.SERVING

    channel: Any = shared.channel
    stub: Any = reflection_pb2_grpc.ServerReflectionStub(channel)

    async def ask() -> AsyncIterator[reflection_pb2.ServerReflectionRequest]:
        yield reflection_pb2.ServerReflectionRequest(list_services="")

    answers = [answer async for answer in stub.ServerReflectionInfo(ask())]
    listed = {service.name for service in answers[0].list_services_response.service}
    assert listed == {*names, "grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"}


async def test_nothing_is_served_before_recovery_is_over(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    over = asyncio.Event()
    recover = Supervisor.recover

    async def late(self: Supervisor) -> None:
        await over.wait()
        await recover(self)

    monkeypatch.setattr(Supervisor, "recover", late)
    client = Client(sandbox.socket)

    async def meanwhile() -> None:
        async def answers() -> bool:
            try:
                return not (await client.daemon.GetInfo(RPCS["GetInfo"].request())).serving  # type: ignore[arg-type]
            except grpc.aio.AioRpcError:
                return False

        await eventually(answers, within=20)
        assert await health_of(client) == health_pb2.HealthCheckResponse.NOT_SERVING
        assert await RPCS["ListSessions"].refusal(client.channel, RPCS["ListSessions"].request()) == "RECOVERING"
        over.set()

    task = asyncio.create_task(meanwhile())
    try:
        async with daemon_here(sandbox):
            await task
            assert await health_of(client) == health_pb2.HealthCheckResponse.SERVING
    finally:
        over.set()
        await client.aclose()


# ── pages ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def pages(rpc: Rpc, client: Client, rows: str, size: int, **fields: Any) -> list[list[Any]]:
    found: list[list[Any]] = []
    token = ""
    while True:
        page: Any = await rpc.call(
            client.channel, rpc.request(page_size=size, page_token=token, **fields), client.metadata
        )
        found.append(list(getattr(page, rows)))
        token = page.next_page_token
        if not token:
            return found


@pytest.fixture(scope="module")
def populated(running: DaemonProcess) -> DaemonProcess:
    """Seven sessions, three of which ask something, and four repositories."""

    async def populate() -> None:
        async with connected(running.sandbox) as client:
            ask = {"tool": "Bash", "input": {"command": "true", "description": "x"}}
            for number in range(7):
                await client.create(repo_of(running), script(ask) if number < 3 else "", name=f"page-{number}")
            for name in ("r1", "r2", "r3"):
                path = running.sandbox.repository(name)
                await client.repos.RegisterRepo(repo_pb2.RegisterRepoRequest(path=str(path)))

            for number in range(3):
                await client.reach(f"page-{number}", WAITING, within=30)

    asyncio.run(populate())
    return running


@pytest.mark.parametrize(
    ("method", "rows", "key"),
    [("ListSessions", "sessions", "id"), ("ListRepos", "repos", "id"), ("ListRequests", "requests", "id"), ("ListEvents", "events", "seq")],
)  # fmt: skip
async def test_pages_hold_everything_once(
    populated: DaemonProcess, shared: Client, method: str, rows: str, key: str
) -> None:
    rpc = RPCS[method]
    (whole,) = await pages(rpc, shared, rows, 1000)
    assert len(whole) >= 3
    for size in (1, 2, len(whole) - 1, len(whole)):
        if size < 3 and len(whole) > 30:
            size += 8  # events are many
        found = await pages(rpc, shared, rows, size)
        assert [getattr(row, key) for page in found for row in page] == [getattr(row, key) for row in whole]
        assert all(len(page) == size for page in found[:-1])


@pytest.mark.parametrize("method", ["ListSessions", "ListRepos", "ListRequests", "ListEvents"])
async def test_a_page_token_that_the_list_did_not_give_is_refused(shared: Client, method: str) -> None:
    rpc = RPCS[method]
    for token in (
        "x",
        "WyJldmVudHMiXQ==",
        "é",
        "WyJyZXBvcyIsICJ4Il0=",
        "WyJldmVudHMiLCAtMV0=",
        "WyJzZXNzaW9ucyIsIFsxXV0=",
    ):
        assert await rpc.refusal(shared.channel, rpc.request(page_token=token)) == "BAD_PAGE_TOKEN"


# ── cursors ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


class Watch:
    """A stream of events, read by a task into a list."""

    def __init__(self, client: Client, **fields: Any) -> None:
        self.items: list[Item] = []
        self._stream = client.events.WatchEvents(event_pb2.WatchEventsRequest(**fields), metadata=client.metadata)
        self._task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for item in self._stream:
            self.items.append(item)

    @property
    def kinds(self) -> list[str]:
        return [
            item.event.WhichOneof("payload") or "" if item.HasField("event") else item.WhichOneof("item") or ""
            for item in self.items
        ]

    @property
    def seqs(self) -> list[int]:
        return [item.event.seq for item in self.items if item.HasField("event")]

    async def has(self, kind: str) -> None:
        await eventually(lambda: kind in self.kinds, within=20)

    async def has_events(self, count: int) -> None:
        await eventually(lambda: len(self.seqs) >= count, within=30)

    async def close(self) -> None:
        self._stream.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


async def test_a_snapshot_comes_first_and_then_what_happens(running: DaemonProcess, shared: Client) -> None:
    await shared.create(repo_of(running), name="before")
    watch = Watch(shared, snapshot=True)
    await watch.has("snapshot")
    await shared.create(repo_of(running), name="afterwards")
    await watch.has("worktree_created")
    await watch.close()

    assert watch.kinds[0] == "snapshot"
    names = [session.name for session in watch.items[0].snapshot.sessions]
    assert "before" in names
    assert "afterwards" not in names
    created = next(item.event.session_created.session for item in watch.items if item.event.HasField("session_created"))
    assert created.name == "afterwards"
    assert watch.seqs == list(range(watch.items[0].cursor.seq + 1, watch.items[-1].cursor.seq + 1))


async def test_a_cursor_of_another_log_or_beyond_the_end_of_this_is_an_explicit_reset(shared: Client) -> None:
    info: Any = await RPCS["GetInfo"].call(shared.channel, RPCS["GetInfo"].request())
    for cursor in (
        common_pb2.Cursor(epoch="other", seq=1),
        common_pb2.Cursor(epoch=info.cursor.epoch, seq=info.cursor.seq + 10_000),
        common_pb2.Cursor(epoch=info.cursor.epoch, seq=(1 << 64) - 1),
    ):
        watch = Watch(shared, after=cursor)
        await watch.has("reset")
        await watch._task
        assert [item.reset.epoch for item in watch.items] == [info.cursor.epoch]
        assert (
            await RPCS["ListEvents"].refusal(shared.channel, RPCS["ListEvents"].request(after=cursor)) == "BAD_CURSOR"
        )


async def test_a_watcher_that_comes_back_after_kills_misses_nothing_and_sees_nothing_twice(
    daemon: DaemonProcess, client: Client, repository: Path
) -> None:
    info: Any = await RPCS["GetInfo"].call(client.channel, RPCS["GetInfo"].request())
    cursor, seen = info.cursor, list[int]()
    await client.create(repository, script({"events": 300, "per_second": 200}, {"text": "done"}), name="talks")
    for _ in range(2):
        async with connected(daemon.sandbox) as other:
            watch = Watch(other, after=cursor)
            await watch.has_events(60)
            daemon.restart()
            await asyncio.gather(watch._task, return_exceptions=True)
            seen += watch.seqs
            cursor = next((item.cursor for item in reversed(watch.items)), cursor)
    await client.reach("talks", IDLE, within=30)
    async with connected(daemon.sandbox) as other:
        watch = Watch(other, after=cursor)
        end = (await client.log())[-1].seq
        await eventually(lambda: watch.seqs and watch.seqs[-1] >= end, within=20)
        await watch.close()
        seen += [seq for seq in watch.seqs if seq <= end]

    assert seen == list(range(info.cursor.seq + 1, end + 1))
    said = [event for event in await client.log("talks") if event.HasField("assistant_message")]
    numbers = [
        block.text.split()[0] for event in said for block in event.assistant_message.blocks if block.text[:1].isdigit()
    ]
    assert numbers == [str(number) for number in range(1, 301)]


async def test_a_quiet_watch_beats(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_api, "HEARTBEAT_S", 0.05)
    path = sandbox.repository()
    async with daemon_here(sandbox), connected(sandbox) as client:
        quiet = await client.create(path, name="quiet")
        watch = Watch(client, sessions=["quiet"])
        await watch.has("heartbeat")
        noisy = asyncio.create_task(client.create(path, name="noisy"))
        await noisy
        end = (await client.log())[-1].seq
        await eventually(lambda: watch.items[-1].cursor.seq >= end)
        await watch.close()
        assert set(watch.kinds) == {"heartbeat"}
        assert quiet.id not in {item.event.session_id for item in watch.items if item.HasField("event")}


async def test_a_watcher_that_does_not_read_costs_no_memory_and_loses_nothing(
    daemon: DaemonProcess, client: Client, repository: Path
) -> None:
    slow: Any = client.events.WatchEvents(event_pb2.WatchEventsRequest(include_frames=True), metadata=client.metadata)
    await client.create(repository, script({"events": 20, "per_second": 1000, "bytes": 3000}), name="warm")
    await client.reach("warm", IDLE, within=30)
    before = psutil.Process(daemon.pid).memory_info().rss
    await client.create(repository, script({"events": 10_000, "per_second": 100_000, "bytes": 3000}), name="loud")
    await client.reach("loud", IDLE, within=60)
    grown = psutil.Process(daemon.pid).memory_info().rss - before

    seqs = [(await slow.read()).event.seq]
    end = (await client.log())[-1].seq
    while seqs[-1] < end:
        seqs.append((await slow.read()).event.seq)
    slow.cancel()
    assert seqs == list(range(seqs[0], seqs[0] + len(seqs)))
    assert len(seqs) > 10_000
    assert grown < 40 << 20, f"{grown >> 20} MB for about 60 MB that nobody reads"


# ── request ids ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────

Make = Callable[[Client, DaemonProcess], Awaitable[tuple[dict[str, Any], ...]]]
"""Prepares a call, and returns its fields and those of another call of the same method, and where that matters who makes it."""


async def idle(client: Client, daemon: DaemonProcess) -> str:
    return (await client.create(repo_of(daemon))).id


async def create(client: Client, daemon: DaemonProcess) -> tuple[dict[str, Any], ...]:
    return {"path": str(repo_of(daemon)), "name": "made"}, {"path": str(repo_of(daemon)), "name": "another"}


def on_session(**more: Any) -> Make:
    async def prepare(client: Client, daemon: DaemonProcess) -> tuple[dict[str, Any], ...]:
        return {"session": await idle(client, daemon), **more}, {"session": await idle(client, daemon), **more}

    return prepare


async def update(client: Client, daemon: DaemonProcess) -> tuple[dict[str, Any], ...]:
    identity = await idle(client, daemon)

    def fields(priority: int) -> dict[str, Any]:
        changed = session_pb2.Session(priority=priority)
        return {"session_id": identity, "session": changed, "update_mask": FieldMask(paths=["priority"])}

    return fields(3), fields(4)


async def send(client: Client, daemon: DaemonProcess) -> tuple[dict[str, Any], ...]:
    identity = await idle(client, daemon)
    await client.sessions.PauseSession(session_pb2.PauseSessionRequest(session=identity))  # the prompt is kept
    return {"session": identity, "prompt": "one"}, {"session": identity, "prompt": "two"}


async def register(client: Client, daemon: DaemonProcess) -> tuple[dict[str, Any], ...]:
    paths = [daemon.sandbox.repository(f"reg{uuid.uuid4().hex[:6]}") for _ in range(2)]
    return {"path": str(paths[0])}, {"path": str(paths[1])}


async def registered(client: Client, daemon: DaemonProcess) -> str:
    path = daemon.sandbox.repository(f"reg{uuid.uuid4().hex[:6]}")
    return (await client.repos.RegisterRepo(repo_pb2.RegisterRepoRequest(path=str(path)))).repo.id


async def change_repo(client: Client, daemon: DaemonProcess) -> tuple[dict[str, Any], ...]:
    identity, name = await registered(client, daemon), uuid.uuid4().hex[:6]

    def fields(name: str) -> dict[str, Any]:
        return {"repo_id": identity, "repo": repo_pb2.Repo(name=name), "update_mask": FieldMask(paths=["name"])}

    return fields(name), fields(f"{name}-2")


async def forget_repo(client: Client, daemon: DaemonProcess) -> tuple[dict[str, Any], ...]:
    return {"repo": await registered(client, daemon)}, {"repo": await registered(client, daemon)}


async def resolve(client: Client, daemon: DaemonProcess) -> tuple[dict[str, Any], ...]:
    ask = {"tool": "Bash", "input": {"command": "true", "description": "x"}}
    made = await client.create(repo_of(daemon), script(ask))
    await client.reach(made.id, WAITING)
    listed = await client.attention.ListRequests(attention_pb2.ListRequestsRequest(session=made.id))
    identity = listed.requests[0].id
    deny = attention_pb2.Resolution(deny=attention_pb2.Denial(message="no"))
    approve = attention_pb2.Resolution(approve=attention_pb2.Approval())
    return {"request": identity, "resolution": deny}, {"request": identity, "resolution": approve}


async def spawn(client: Client, daemon: DaemonProcess) -> tuple[dict[str, Any], ...]:
    path = str(repo_of(daemon))
    return {"path": path, "prompt": "x", "name": "spawned"}, {"path": path, "prompt": "x", "name": "spawned-2"}


async def report(client: Client, daemon: DaemonProcess) -> tuple[dict[str, Any], ...]:
    token = token_for(daemon, await idle(client, daemon))
    return {"text": "all done"}, {"text": "nothing done"}, {"ramet-token": token}


async def commented(client: Client, daemon: DaemonProcess) -> tuple[str, str]:
    """A session with a comment, and the comment."""
    identity = await idle(client, daemon)
    request = worktree_pb2.AddCommentRequest(session=identity, path="dir0/file0.txt", line=1, text="why")
    return identity, (await client.worktrees.AddComment(request)).comment.id


async def resolve_comment(client: Client, daemon: DaemonProcess) -> tuple[dict[str, Any], ...]:
    return {"comment": (await commented(client, daemon))[1]}, {"comment": (await commented(client, daemon))[1]}


async def send_comments(client: Client, daemon: DaemonProcess) -> tuple[dict[str, Any], ...]:
    sessions = [(await commented(client, daemon))[0] for _ in range(2)]
    for each in sessions:
        await client.sessions.PauseSession(session_pb2.PauseSessionRequest(session=each))  # the prompt is kept
    return {"session": sessions[0]}, {"session": sessions[1]}


async def ask_for_path(client: Client, daemon: DaemonProcess) -> tuple[dict[str, Any], ...]:
    identity = await idle(client, daemon)
    forbids = session_pb2.UpdateSessionRequest(
        session_id=identity, session=session_pb2.Session(forbids=["docs/"]), update_mask=FieldMask(paths=["forbids"])
    )
    await client.sessions.UpdateSession(forbids)
    token = token_for(daemon, identity)
    return {"paths": ["docs/a"], "reason": "x"}, {"paths": ["docs/b"], "reason": "x"}, {"ramet-token": token}


async def hand_over(client: Client, daemon: DaemonProcess) -> tuple[dict[str, Any], ...]:
    asked, _, who = await ask_for_path(client, daemon)
    rpc = RPCS["RequestPath"]
    made: Any = await rpc.call(client.channel, rpc.request(**asked), tuple(who.items()))
    return {"path_request_id": made.path_request_id}, {"path_request_id": made.path_request_id, "refuse": True}


async def make_rule(client: Client, daemon: DaemonProcess) -> tuple[dict[str, Any], ...]:
    def fields(command: str) -> dict[str, Any]:
        allow = attention_pb2.RULE_EFFECT_ALLOW
        return {"repo": str(repo_of(daemon)), "effect": allow, "rule": f"Bash({command}:*)"}

    await idle(client, daemon)  # registers the repository
    return fields("ls"), fields("cat")


async def drop_rule(client: Client, daemon: DaemonProcess) -> tuple[dict[str, Any], ...]:
    made: list[Any] = []
    for command in ("du", "df"):
        allow = attention_pb2.RULE_EFFECT_ALLOW
        fields = {"repo": str(repo_of(daemon)), "effect": allow, "rule": f"Bash({command}:*)"}
        made.append(await RPCS["CreateRule"].call(client.channel, RPCS["CreateRule"].request(**fields)))
    return {"rule_id": made[0].rule.id}, {"rule_id": made[1].rule.id}


async def archived(client: Client, daemon: DaemonProcess) -> str:
    identity = await idle(client, daemon)
    await client.sessions.ArchiveSession(session_pb2.ArchiveSessionRequest(session=identity))
    return identity


async def restore(client: Client, daemon: DaemonProcess) -> tuple[dict[str, Any], ...]:
    return {"session": await archived(client, daemon)}, {"session": await archived(client, daemon)}


async def removed(client: Client, daemon: DaemonProcess) -> str:
    identity = await archived(client, daemon)
    await client.sessions.DeleteSession(session_pb2.DeleteSessionRequest(session=identity))
    return identity


async def restore_trash(client: Client, daemon: DaemonProcess) -> tuple[dict[str, Any], ...]:
    return {"entry": await removed(client, daemon)}, {"entry": await removed(client, daemon)}


async def empty_trash(client: Client, daemon: DaemonProcess) -> tuple[dict[str, Any], ...]:
    return {"entries": [await removed(client, daemon)]}, {"entries": [await removed(client, daemon)]}


async def look_over(client: Client, daemon: DaemonProcess) -> tuple[dict[str, Any], ...]:
    return {"repo": await registered(client, daemon)}, {"repo": await registered(client, daemon)}


async def two_repositories(client: Client, daemon: DaemonProcess) -> tuple[dict[str, Any], ...]:
    return {"repo": await registered(client, daemon)}, {"repo": await registered(client, daemon)}


async def land(client: Client, daemon: DaemonProcess) -> tuple[dict[str, Any], ...]:
    made = [await with_work(client, repo_of(daemon), f"work-{uuid.uuid4().hex[:8]}") for _ in range(2)]
    return {"sessions": [made[0].id]}, {"sessions": [made[1].id]}


async def on_landing(client: Client, daemon: DaemonProcess) -> tuple[dict[str, Any], ...]:
    """Of sessions that wait for one that has not landed."""
    await with_work(client, repo_of(daemon), name := f"first-{uuid.uuid4().hex[:8]}")
    made = [await with_work(client, repo_of(daemon), f"later-{uuid.uuid4().hex[:8]}", after=[name]) for _ in range(2)]
    queued = await Landings(client).land(*(session.id for session in made))
    return {"landing": queued[0].id}, {"landing": queued[1].id}


async def stop_command(client: Client, daemon: DaemonProcess) -> tuple[dict[str, Any], ...]:
    starting = RPCS["StartCommand"]
    sessions = [await idle(client, daemon) for _ in range(2)]
    requests = [starting.request(session=session, argv=("sleep", "600")) for session in sessions]
    started: list[Any] = [await starting.call(client.channel, request) for request in requests]
    return tuple({"command": each.command.id} for each in started)


def a_plan(daemon: DaemonProcess) -> dict[str, Any]:
    name = f"planned-{uuid.uuid4().hex[:8]}"
    text = f'[plan]\nname = "{name}"\n[[threads]]\nid = "{name}"\n'
    return {"path": str(repo_of(daemon)), "text": text}


async def apply_plan(client: Client, daemon: DaemonProcess) -> tuple[dict[str, Any], ...]:
    return a_plan(daemon), a_plan(daemon)


async def on_plan(client: Client, daemon: DaemonProcess) -> tuple[dict[str, Any], ...]:
    made = [await client.plans.ApplyPlan(plan_pb2.ApplyPlanRequest(**a_plan(daemon))) for _ in range(2)]
    return {"plan": made[0].plan_id}, {"plan": made[1].plan_id}


async def linked(client: Client, daemon: DaemonProcess) -> str:
    identity = await idle(client, daemon)
    await client.landing.LinkPullRequest(landing_pb2.LinkPullRequestRequest(session=identity, number=101))
    return identity


async def feed_back(client: Client, daemon: DaemonProcess) -> tuple[dict[str, Any], ...]:
    return {"session": await linked(client, daemon)}, {"session": await linked(client, daemon)}


async def open_pull(client: Client, daemon: DaemonProcess) -> tuple[dict[str, Any], ...]:
    made = await client.create(repo_of(daemon), name=f"pulled-{uuid.uuid4().hex[:6]}")
    git(Path(made.worktree), "commit", "-q", "--allow-empty", "-m", "work")
    return {"session": made.id}, {"session": made.id, "title": "another"}


async def clean_up_pulls(client: Client, daemon: DaemonProcess) -> tuple[dict[str, Any], ...]:
    return {"sessions": [await linked(client, daemon)]}, {"sessions": [await linked(client, daemon)]}


@pytest.fixture
def github(sandbox: Sandbox, repository: Path) -> Iterator[None]:
    """What `gh` and pushes lead to; two pull requests are open there."""
    if shutil.which("gh") is None and not os.environ.get("CI"):
        pytest.skip("gh is not installed")
    bare = add_remote(sandbox, repository)
    socket = sandbox.root / "github.sock"
    log_in(sandbox.root / "config" / "gh", socket)
    model = GitHubModel(bare)
    for _ in range(2):
        model.open("main")
    with serving(model, socket):
        yield


async def rewind(client: Client, daemon: DaemonProcess) -> tuple[dict[str, Any], ...]:
    kept = [await idle(client, daemon), await idle(client, daemon)]
    for session in kept:
        request = worktree_pb2.CreateCheckpointRequest(session=session)
        await client.worktrees.CreateCheckpoint(request, metadata=client.metadata)
    one, other = ({"session": session, "checkpoint": "1"} for session in kept)
    return one, other


MUTATIONS: dict[str, Make] = {
    "ForkSession": on_session(),
    "SyncSession": on_session(),
    "CreateCheckpoint": on_session(),
    "RewindSession": rewind,
    "AddComment": on_session(path="dir0/file0.txt", line=1, text="why"),
    "ResolveComment": resolve_comment,
    "SendComments": send_comments,
    "ApplyPlan": apply_plan,
    "ConvergePlan": on_plan,
    "CleanUpPlan": on_plan,
    "StartCommand": on_session(argv=("true",)),
    "StopCommand": stop_command,
    "SetUpSession": on_session(),
    "LandSessions": land,
    "RemoveLanding": on_landing,
    "RetryLanding": on_landing,
    "SpawnSession": spawn,
    "SendMessage": on_session(text="hello"),
    "StopMember": on_session(),
    "ReportResult": report,
    "RequestPath": ask_for_path,
    "HandOverPath": hand_over,
    "CreateRule": make_rule,
    "DeleteRule": drop_rule,
    "CreateSession": create,
    "UpdateSession": update,
    "SendPrompt": send,
    "InterruptSession": on_session(),
    "StopSession": on_session(),
    "ResumeSession": on_session(),
    "PauseSession": on_session(),
    "DeleteSession": on_session(),
    "ArchiveSession": on_session(),
    "RestoreSession": restore,
    "RestoreTrash": restore_trash,
    "EmptyTrash": empty_trash,
    "CollectGarbage": look_over,
    "Diagnose": look_over,
    "RegisterRepo": register,
    "UpdateRepo": change_repo,
    "RemoveRepo": forget_repo,
    "ResolveRequest": resolve,
    "CreatePullRequest": open_pull,
    "LinkPullRequest": on_session(number=101),
    "FixPullRequest": feed_back,
    "CleanUpPullRequests": clean_up_pulls,
    "FillPool": two_repositories,
    "DrainPool": two_repositories,
}


def test_every_call_that_changes_something_takes_a_request_id_and_is_tried_here() -> None:
    assert {name for name, rpc in RPCS.items() if rpc.mutates} == set(MUTATIONS)
    reading = ("Get", "List", "Watch", "Wait", "Read", "Check")
    assert {name for name in RPCS if not name.startswith(reading)} == {*MUTATIONS, "Shutdown"}


@pytest.mark.usefixtures("github")
async def test_the_same_request_id_is_the_same_call_with_the_same_answer_also_after_a_kill(
    daemon: DaemonProcess, client: Client, repository: Path
) -> None:
    answers: dict[str, tuple[Message, Message, Message, Any]] = {}
    for name, prepare in MUTATIONS.items():
        rpc = RPCS[name]
        fields, others, *who = await prepare(client, daemon)
        metadata = tuple(each for part in who for each in part.items())
        request, other = rpc.request(request_id=f"id-{name}", **fields), rpc.request(request_id=f"id-{name}", **others)
        # Two at once are one call.
        calls = [rpc.call(client.channel, request, metadata) for _ in range(2)]
        first, second = await asyncio.gather(*calls)
        third = await rpc.call(client.channel, request, metadata)
        assert first == second == third, name
        assert await rpc.refusal(client.channel, other, metadata) == "REQUEST_ID_REUSED", name
        answers[name] = request, first, other, metadata
    assert await RPCS["PauseSession"].refusal(
        client.channel, RPCS["PauseSession"].request(session="made", request_id="id-StopSession")
    ) == "REQUEST_ID_REUSED"  # fmt: skip
    names = [
        session.name for session in (await client.sessions.ListSessions(session_pb2.ListSessionsRequest())).sessions
    ]
    assert names.count("made") == 1

    daemon.restart()

    async with connected(daemon.sandbox) as later:
        for name, (request, answer, other, metadata) in answers.items():
            assert await RPCS[name].call(later.channel, request, metadata) == answer, name
            assert await RPCS[name].refusal(later.channel, other, metadata) == "REQUEST_ID_REUSED", name
        _, removed_one, _, _ = answers["DeleteSession"]
        gone = [event.session_id for event in await later.log() if event.HasField("session_removed")]
        assert gone.count(removed_one.session.id) == 1  # type: ignore[attr-defined]


async def test_a_call_that_was_killed_in_the_middle_is_done_once(
    daemon: DaemonProcess, client: Client, repository: Path
) -> None:
    rpc = RPCS["CreateSession"]
    request = rpc.request(path=str(repository), name="once", request_id="again")
    call = asyncio.create_task(rpc.refusal(client.channel, request))
    await eventually(lambda: list((daemon.sandbox.root / "state" / "worktrees").glob("*/*")), every=0.001)
    daemon.restart()
    await call

    async with connected(daemon.sandbox) as later:
        answers: list[Any] = [await rpc.call(later.channel, request) for _ in range(2)]
        listed = await later.sessions.ListSessions(session_pb2.ListSessionsRequest())
        assert [session.id for session in listed.sessions] == [answers[0].session.id]
        assert answers[0] == answers[1]


async def test_an_answer_that_a_kill_kept_from_its_caller_is_given_when_it_asks_again(sandbox: Sandbox) -> None:
    rpc = RPCS["DeleteSession"]
    path = sandbox.repository()
    with daemon_process(sandbox) as daemon:
        async with connected(sandbox) as client:
            await client.create(path, name="doomed")
        daemon.kill()
        daemon.start(RAMET_FAILPOINT="remove.forgotten")
        request = rpc.request(session="doomed", request_id="once")
        async with connected(sandbox) as client:
            assert await rpc.refusal(client.channel, request) == "UNAVAILABLE"
        daemon.kill()
        daemon.start()
        async with connected(sandbox) as client:
            answer: Any = await rpc.call(client.channel, request)
            assert answer.session.name == "doomed"
            assert await rpc.refusal(client.channel, rpc.request(session="doomed")) == "SESSION_NOT_FOUND"


async def test_an_update_changes_what_its_mask_names_and_nothing_else(running: DaemonProcess, shared: Client) -> None:
    made = await shared.create(repo_of(running), name="masked", budget_usd=5.0, model="opus")
    rpc = RPCS["UpdateSession"]
    new = session_pb2.Session(name="renamed", model="haiku", priority=7)
    for paths in ([], ["state"], ["priority", "id"], ["nothing"]):
        request = rpc.request(session_id=made.id, session=new, update_mask=FieldMask(paths=paths))
        assert await rpc.refusal(shared.channel, request) == "INVALID_INPUT"
    request = rpc.request(session_id=made.id, session=new, update_mask=FieldMask(paths=["priority", "budget_usd"]))
    answer: Any = await rpc.call(shared.channel, request)
    session = answer.session
    assert (session.name, session.model, session.priority, session.HasField("budget_usd")) == (
        "masked",
        "opus",
        7,
        False,
    )


# ── who may what ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def token_for(daemon: DaemonProcess, session_id: str) -> str:
    return Tokens.load(daemon.sandbox.root / "state" / "secrets" / "token.key").give(session_id)


async def test_every_call_is_served_to_those_who_may_and_to_nobody_else(running: DaemonProcess, shared: Client) -> None:
    session = await shared.create(repo_of(running), name="caller")
    removed = await shared.create(repo_of(running), name="removed")
    await shared.sessions.DeleteSession(session_pb2.DeleteSessionRequest(session=removed.id))
    good = token_for(running, session.id)
    callers = {
        "owner": (),
        "session": (("ramet-token", good),),
        "forged": (("ramet-token", f"{session.id}.{'0' * 40}"),),
        "empty": (("ramet-token", ""),),
        "removed": (("ramet-token", token_for(running, removed.id)),),
    }
    verdicts: dict[tuple[str, str], str] = {}
    for name, rpc in RPCS.items():
        for who, metadata in callers.items():
            if (name, who) == ("Shutdown", "owner"):
                continue  # has a test of its own
            fields = {"snapshot": True} if "snapshot" in rpc.method.input_type.fields_by_name else {}
            request = rpc.request(**fields)
            verdicts[name, who] = await rpc.refusal(shared.channel, request, metadata)

    known = {"", *reasons()}
    for (name, who), reason in verdicts.items():
        may = allowed(RPCS[name].path, who == "owner")
        if who in {"owner", "session"}:
            assert (name, who, reason == "PERMISSION_DENIED") == (name, who, not may)
        else:
            assert (name, who, reason) == (name, who, "UNAUTHENTICATED")
        assert reason in known - {"INTERNAL"}, f"{name} as {who}: {reason}"


async def test_what_is_denied_is_on_record(running: DaemonProcess, shared: Client) -> None:
    session = await shared.create(repo_of(running), name="tries")
    request = RPCS["DeleteSession"].request(session=session.id, force=True)
    metadata = (("ramet-token", token_for(running, session.id)),)
    assert await RPCS["DeleteSession"].refusal(shared.channel, request, metadata) == "PERMISSION_DENIED"

    audit: Any = await RPCS["ListEvents"].call(
        shared.channel, RPCS["ListEvents"].request(audit=True, newest=True, page_size=1)
    )
    (event,) = audit.events
    assert event.call_denied.method == "/ramet.v1.SessionService/DeleteSession"
    assert (event.principal, event.session_id) == (f"session:{session.id}", session.id)
    assert (await shared.get("tries")).id == session.id


async def test_a_token_in_an_agents_environment_makes_the_same_commands_act_as_that_session(
    running: DaemonProcess, shared: Client
) -> None:
    session = await shared.create(repo_of(running), name="inside")
    token = token_for(running, session.id)
    shown = running.sandbox.ctl("show", "inside", "--json", RAMET_SESSION=session.id, RAMET_TOKEN=token)
    assert shown.code == 0
    refused = running.sandbox.ctl("rm", "inside", RAMET_SESSION=session.id, RAMET_TOKEN=token)
    assert (refused.code, refused.stderr) == (
        1,
        "rametctl: a session may not call DeleteSession; ask the person, who can\n",
    )


async def test_the_owner_shuts_the_daemon_down_with_a_clean_exit(daemon: DaemonProcess, client: Client) -> None:
    await RPCS["Shutdown"].call(client.channel, RPCS["Shutdown"].request())
    assert daemon.process is not None
    assert await asyncio.to_thread(daemon.process.wait, 20) == 0


# ── errors ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def reasons() -> set[str]:
    return {
        each.reason for each in vars(errors).values() if isinstance(each, type) and issubclass(each, errors.RametError)
    }


HOSTILE = (
    "",
    " ",
    "\0",
    "/",
    "/\0",
    "..",
    "../../etc/passwd",
    "-x",
    "a" * 5000,
    "/" + "a" * 300,
    "ünï/😀",
    "refs/heads/x..y",
    "\n",
    "%",
    "/etc",
)


async def test_hostile_strings_get_typed_refusals_and_never_an_internal_error(
    running: DaemonProcess, shared: Client
) -> None:
    known = {"", *reasons()} - {"INTERNAL"}
    session = await shared.create(repo_of(running), name="victim")
    for name, rpc in RPCS.items():
        fields = [
            field for field in rpc.method.input_type.fields if field.type == field.TYPE_STRING and not field.is_repeated
        ]
        for field in fields:
            if field.name == "request_id":
                continue
            for text in HOSTILE:
                rest: dict[str, Any] = {"path": str(repo_of(running))} if name == "CreateSession" else {}
                if name in {"SendPrompt", "GetDiff"}:
                    rest = {"session": session.id}
                if name == "SendPrompt" and field.name == "prompt":
                    continue  # a prompt may be anything
                if name == "CreateSession" and field.name == "prompt":
                    continue
                reason = await rpc.refusal(shared.channel, rpc.request(**{**rest, field.name: text}))
                assert reason in known, f"{name}.{field.name}={text[:20]!r}: {reason}"


@pytest.mark.parametrize(
    "fields",
    [
        {"budget_usd": -1.0},
        {"budget_usd": float("nan")},
        {"budget_usd": float("inf")},
        {"model": "a\nb"},
        {"model": "--dangerously-skip-permissions"},
        {"agent": "nobody"},
        {"mode": 77},
        {"environment": {"A=B": "x"}},
        {"environment": {"ANTHROPIC_API_KEY": "a\0b"}},
        {"path": "relative"},
        {"parent": "nobody"},
        {"after": ["nobody"]},
        {"base_ref": "main", "existing_branch": "main\0"},
    ],
)
async def test_a_session_that_could_not_work_is_refused_before_it_is_made(
    running: DaemonProcess, shared: Client, fields: dict[str, Any]
) -> None:
    before = len((await shared.sessions.ListSessions(session_pb2.ListSessionsRequest(page_size=1000))).sessions)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await shared.create(**{"path": repo_of(running), "prompt": "x", **fields})
    assert reason_of(caught.value) in {
        "INVALID_INPUT",
        "BAD_ENVIRONMENT",
        "SESSION_NOT_FOUND",
        "REF_NOT_FOUND",
        "BAD_NAME",
    }
    assert hint_of(caught.value)
    after = len((await shared.sessions.ListSessions(session_pb2.ListSessionsRequest(page_size=1000))).sessions)
    assert after == before


def hint_of(error: grpc.aio.AioRpcError) -> str:
    details = dict(error.trailing_metadata() or ())["grpc-status-details-bin"]
    info = ErrorInfo()
    assert isinstance(details, bytes)
    assert Status.FromString(details).details[0].Unpack(info)
    return str(info.metadata["hint"])


async def test_the_text_of_our_own_fault_stays_in_the_log_and_its_identity_is_told(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(*_: object) -> None:
        raise ValueError("text about insides")

    path = sandbox.repository()
    async with daemon_here(sandbox), connected(sandbox) as client:
        await client.create(path, name="one")
        monkeypatch.setattr(Sessions, "pause", fails)
        with structlog.testing.capture_logs() as logged, pytest.raises(grpc.aio.AioRpcError) as caught:
            await client.sessions.PauseSession(session_pb2.PauseSessionRequest(session="one"))

    (entry,) = [each for each in logged if each["event"] == "internal error"]
    assert caught.value.code() == grpc.StatusCode.INTERNAL
    assert reason_of(caught.value) == "INTERNAL"
    assert caught.value.details() == f"internal error {entry['id']}"
    assert entry["id"] in hint_of(caught.value)
    assert "insides" not in str(caught.value) + str(caught.value.trailing_metadata())
    assert str(entry["exc_info"]) == "text about insides"


# ── versions and secrets ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("version", "reason"), [("99", "VERSION_SKEW"), ("0", "VERSION_SKEW"), ("1", ""), ("curious", "")]
)
async def test_a_client_of_another_contract_is_told_which_side_is_older(
    shared: Client, version: str, reason: str
) -> None:
    metadata = (("ramet-contract", version),)
    assert await RPCS["ListRepos"].refusal(shared.channel, RPCS["ListRepos"].request(), metadata) == reason
    assert await RPCS["GetInfo"].refusal(shared.channel, RPCS["GetInfo"].request(), metadata) == ""


async def test_a_secret_is_in_no_database_no_event_no_log_and_no_argument(
    daemon: DaemonProcess, client: Client, repository: Path
) -> None:
    canary = f"canary-{uuid.uuid4()}"
    made = daemon.sandbox.ctl(
        "new", "--name", "keeps", script({"text": "hello"}, {"hang": True}), cwd=repository, ANTHROPIC_API_KEY=canary
    )
    assert made.code == 0, made.stderr
    await client.reach("keeps", WORKING)
    state = daemon.sandbox.root / "state"
    agents = daemon.sandbox.agents()
    assert [process.environ()["ANTHROPIC_API_KEY"] for process in agents] == [canary], "the agent itself has it"

    holders = [path for path in state.rglob("*") if path.is_file() and canary.encode() in path.read_bytes()]
    for path in holders:
        assert path.parent.name == "secrets" or path.name == "environment", path
        assert path.stat().st_mode & 0o077 == 0
    for process in psutil.process_iter():
        try:
            assert canary not in " ".join(process.cmdline())
        except (psutil.NoSuchProcess, psutil.ZombieProcess):
            continue
    assert not [event for event in await client.log(frames=True) if canary in str(event)]
    shown = daemon.sandbox.ctl("show", "keeps", "--json").stdout + daemon.sandbox.ctl("log", "keeps").stdout
    assert canary not in shown
    daemon.sandbox.ctl("rm", "keeps", "--force")
    kept = [path for path in state.rglob("*") if path.is_file() and canary.encode() in path.read_bytes()]
    assert [path.parent.name for path in kept] == ["secrets"], "what can be brought back keeps its environment"
    assert daemon.sandbox.ctl("trash", "empty", "keeps", "--yes").code == 0
    assert [path for path in state.rglob("*") if path.is_file() and canary.encode() in path.read_bytes()] == []
    assert json.loads(daemon.sandbox.ctl("ls", "--all", "--json").stdout) == []
