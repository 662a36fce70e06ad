"""Request ids: the same call runs once and has one answer, also after a kill. Update masks."""

import asyncio
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.message import Message
from ramet.v1 import session_pb2

from tests.support.daemon import Client, DaemonProcess, Sandbox, connected, daemon_process
from tests.support.eventually import eventually
from tests.support.github import GitHubModel, add_remote, log_in, serving
from tests.support.mutations import MUTATIONS
from tests.support.rpc import RPCS
from tests.support.running import repo_of


@pytest.fixture
def github(sandbox: Sandbox, repository: Path) -> Iterator[None]:
    """The scripted GitHub and remote, with two open pull requests."""
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


REPEATABLE = {
    "Shutdown": "there is one daemon to end",
    "ReportFocus": "a report is repeated every 20 seconds",
    "TestNotifications": "each call is one more test message",
    "AttachNative": "the same process has the same lease",
}
"""Calls that need no request id, with the reason."""


def test_every_call_that_changes_something_takes_a_request_id_and_is_tried_here() -> None:
    assert {name for name, rpc in RPCS.items() if rpc.mutates} == set(MUTATIONS)
    reading = ("Get", "List", "Watch", "Wait", "Read", "Check")
    assert {name for name in RPCS if not name.startswith(reading)} == {*MUTATIONS, *REPEATABLE}


@pytest.mark.usefixtures("github")
@pytest.mark.full
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


async def test_a_repeated_call_gets_the_answer_that_a_kill_withheld(sandbox: Sandbox) -> None:
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
