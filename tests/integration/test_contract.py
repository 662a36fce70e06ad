"""Guarantees for every client: served calls, pages, roles, versions, and no leaked secret."""

import asyncio
import json
import uuid
from collections.abc import AsyncIterator
from collections.abc import Set as AbstractSet
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import psutil
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from ramet.v1 import repo_pb2
from rametd.services.agents.supervisor import Supervisor

from tests.support.agents import script
from tests.support.daemon import WAITING, WORKING, Client, DaemonProcess, Sandbox, connected, daemon_here
from tests.support.eventually import eventually
from tests.support.rpc import RPCS, SERVICES, Rpc
from tests.support.running import repo_of, token_for

# ── served calls ──────────────────────────────────────────────────────────────────────────────────


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

    async def late(self: Supervisor, but: AbstractSet[str] = frozenset()) -> None:
        await over.wait()
        await recover(self, but)

    monkeypatch.setattr(Supervisor, "recover", late)
    client = Client(sandbox.socket)

    async def meanwhile() -> None:
        async def answers() -> bool:
            try:
                return not (await client.daemon.GetInfo(RPCS["GetInfo"].request())).serving  # type: ignore[arg-type]
            except grpc.aio.AioRpcError:
                return False

        await eventually(answers)
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


# ── pages ─────────────────────────────────────────────────────────────────────────────────────────


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
    """Create seven sessions, three with a request, and four repositories."""

    async def populate() -> None:
        async with connected(running.sandbox) as client:
            ask = {"tool": "Bash", "input": {"command": "true", "description": "x"}}
            for number in range(7):
                await client.create(repo_of(running), script(ask) if number < 3 else "", name=f"page-{number}")
            for name in ("r1", "r2", "r3"):
                path = running.sandbox.repository(name)
                await client.repos.RegisterRepo(repo_pb2.RegisterRepoRequest(path=str(path)))

            for number in range(3):
                await client.reach(f"page-{number}", WAITING)

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


# ── roles ─────────────────────────────────────────────────────────────────────────────────────────


async def test_a_request_id_belongs_to_its_caller(running: DaemonProcess, shared: Client) -> None:
    caller = await shared.create(repo_of(running), name="id-caller")
    stranger = await shared.create(repo_of(running), name="id-stranger")
    as_caller = (("ramet-token", token_for(running, caller.id)),)
    tried: dict[str, dict[str, Any]] = {
        "SendPrompt": {"session": stranger.id, "prompt": "hello"},
        "StartCommand": {"session": stranger.id, "argv": ["true"]},
    }
    for name, fields in tried.items():
        rpc = RPCS[name]
        answered = rpc.request(request_id=f"answered-{name}", **fields)
        await rpc.call(shared.channel, answered)
        assert await rpc.refusal(shared.channel, answered, as_caller) == "PERMISSION_DENIED"
        # A request id that a session used first is still free for the owner.
        mine = rpc.request(request_id=f"mine-{name}", **{**fields, "session": caller.id})
        await rpc.refusal(shared.channel, mine, as_caller)
        assert not await rpc.refusal(shared.channel, rpc.request(request_id=f"mine-{name}", **fields))


async def test_what_is_denied_is_on_record(running: DaemonProcess, shared: Client) -> None:
    session = await shared.create(repo_of(running), name="tries")
    request = RPCS["DeleteSession"].request(session=session.id, force=True)
    metadata = (("ramet-token", token_for(running, session.id)),)
    assert await RPCS["DeleteSession"].refusal(shared.channel, request, metadata) == "PERMISSION_DENIED"

    audit: Any = await RPCS["ListEvents"].call(
        shared.channel, RPCS["ListEvents"].request(audit=True, session=session.id)
    )
    (event,) = [each for each in audit.events if each.HasField("call_denied")]
    assert event.call_denied.method == "/ramet.v1.SessionService/DeleteSession"
    assert (event.principal, event.session_id) == (f"session:{session.id}", session.id)
    assert (await shared.get("tries")).id == session.id


async def test_an_agents_token_makes_the_command_line_act_as_that_session(
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


# ── versions and secrets ──────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("version", "reason"), [("99", "VERSION_SKEW"), ("0", "VERSION_SKEW"), ("1", ""), ("curious", "")]
)
async def test_a_refusal_of_another_contract_names_the_older_side(shared: Client, version: str, reason: str) -> None:
    metadata = (("ramet-contract", version),)
    assert await RPCS["ListRepos"].refusal(shared.channel, RPCS["ListRepos"].request(), metadata) == reason
    assert await RPCS["GetInfo"].refusal(shared.channel, RPCS["GetInfo"].request(), metadata) == ""


def holders(folder: Path, text: str) -> list[Path]:
    """Return the files that contain ``text``."""
    found = []
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):  # a running daemon creates and removes files
            if path.is_file() and text.encode() in path.read_bytes():
                found.append(path)
    return found


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

    for path in holders(state, canary):
        assert path.parent.name == "secrets" or path.name == "environment", path
        assert path.stat().st_mode & 0o077 == 0
    for process in psutil.process_iter():
        try:
            assert canary not in " ".join(process.cmdline())
        except psutil.Error:  # it has ended, or is another user's
            continue
    assert not [event for event in await client.log(frames=True) if canary in str(event)]
    shown = daemon.sandbox.ctl("show", "keeps", "--json").stdout + daemon.sandbox.ctl("log", "keeps").stdout
    assert canary not in shown
    daemon.sandbox.ctl("rm", "keeps", "--force", "--stop")
    places = [path.parent.name for path in holders(state, canary)]
    assert places == ["secrets"], "a session that can be restored keeps its environment"
    assert daemon.sandbox.ctl("trash", "empty", "keeps", "--yes").code == 0
    assert holders(state, canary) == []
    assert json.loads(daemon.sandbox.ctl("ls", "--all", "--json").stdout) == []
