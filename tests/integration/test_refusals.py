"""Errors: each is typed, says what to do, and has no internals."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
import structlog
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status
from ramet.v1 import session_pb2
from rametd.api.interceptor import PROSE
from rametd.services.sessions import Sessions

from tests.support.daemon import Client, DaemonProcess, Sandbox, connected, daemon_here, reason_of
from tests.support.rpc import RPCS, reasons
from tests.support.running import repo_of

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


def texts_of_fields() -> Iterator[tuple[str, str, str]]:
    """Method, field and text. Fields of one name are checked by the same code, so they share the
    texts: each of them gets a third, if they are many."""
    fields: dict[str, list[str]] = defaultdict(list)
    for name, rpc in RPCS.items():
        for field in rpc.method.input_type.fields:
            if field.type == field.TYPE_STRING and not field.is_repeated and field.name != "request_id":
                fields[field.name].append(name)
    for field_name, methods in fields.items():
        share = min(len(methods), 3)
        for number, method in enumerate(methods):
            for text in HOSTILE[number % share :: share]:
                yield method, field_name, text


@pytest.mark.full
async def test_hostile_strings_get_typed_refusals_and_never_an_internal_error(
    running: DaemonProcess, shared: Client
) -> None:
    known = {"", *reasons()} - {"INTERNAL"}
    session = await shared.create(repo_of(running), name="victim")
    for name, field, text in texts_of_fields():
        if field == "prompt":
            continue  # a prompt may have any text
        rest: dict[str, Any] = {"path": str(repo_of(running))} if name == "CreateSession" else {}
        if name in {"SendPrompt", "GetDiff"}:
            rest = {"session": session.id}
        reason = await RPCS[name].refusal(shared.channel, RPCS[name].request(**{**rest, field: text}))
        assert reason in known, f"{name}.{field}={text[:20]!r}: {reason}"


@pytest.mark.full
async def test_texts_and_lists_without_end_are_refused_wherever_they_come(
    running: DaemonProcess, shared: Client
) -> None:
    for name, rpc in RPCS.items():
        for field in rpc.method.input_type.fields:
            if field.type != field.TYPE_STRING or field.name in PROSE:
                continue
            value = "x" * 100_000 if not field.is_repeated else ["x"] * 100_000
            assert await rpc.refusal(shared.channel, rpc.request(**{field.name: value})) == "INVALID_INPUT", (
                name,
                field.name,
            )


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
        {"path": "relative"},
        {"parent": "nobody"},
        {"after": ["nobody"]},
        {"base_ref": "main", "existing_branch": "main\0"},
    ],
)
async def test_a_session_that_could_not_work_is_refused_before_its_creation(
    running: DaemonProcess, shared: Client, fields: dict[str, Any]
) -> None:
    before = len((await shared.sessions.ListSessions(session_pb2.ListSessionsRequest(page_size=1000))).sessions)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await shared.create(**{"path": repo_of(running), "prompt": "x", **fields})
    assert reason_of(caught.value) in {
        "INVALID_INPUT",
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


async def test_the_text_of_an_internal_error_stays_in_the_log(
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
