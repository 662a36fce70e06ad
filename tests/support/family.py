"""Helpers for tests of families: calls as a session, scripts that use the daemon's tools, and their
results."""

import uuid
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import grpc
from ramet.v1 import attention_pb2, common_pb2, event_pb2, orchestration_pb2, session_pb2
from rametd.services.tokens import Tokens

from tests.support.daemon import Client, Sandbox, reason_of

EDITS = common_pb2.PERMISSION_MODE_ACCEPT_EDITS
Step = dict[str, Any]


def token_of(sandbox: Sandbox, session_id: str) -> str:
    """Return the token that a session's agent has in its environment."""
    return Tokens.load(sandbox.root / "state" / "secrets" / "token.key").give(session_id)


class Member:
    """Calls of the tools' service as one session; "" is the owner."""

    def __init__(self, client: Client, sandbox: Sandbox, session_id: str = "") -> None:
        self.id = session_id
        self._stub = client.orchestration
        token = (("ramet-token", token_of(sandbox, session_id)),) if session_id else ()
        self._metadata = (*client.metadata, *token)

    async def spawn(self, prompt: str = "", **fields: Any) -> orchestration_pb2.Member:
        fields.setdefault("request_id", str(uuid.uuid4()))
        request = orchestration_pb2.SpawnSessionRequest(prompt=prompt or "nothing to do", **fields)
        return (await self._stub.SpawnSession(request, metadata=self._metadata)).session

    async def say(self, name: str, text: str, **fields: Any) -> orchestration_pb2.SendMessageResponse:
        fields.setdefault("request_id", str(uuid.uuid4()))
        request = orchestration_pb2.SendMessageRequest(session=name, text=text, **fields)
        return await self._stub.SendMessage(request, metadata=self._metadata)

    async def messages(self, **fields: Any) -> list[orchestration_pb2.Message]:
        request = orchestration_pb2.ReadMessagesRequest(**fields)
        return list((await self._stub.ReadMessages(request, metadata=self._metadata)).messages)

    async def members(self) -> dict[str, str]:
        """Return the relation by name."""
        request = orchestration_pb2.ListFamilyRequest()
        found = (await self._stub.ListFamily(request, metadata=self._metadata)).sessions
        return {member.name: member.relation for member in found}

    async def get(self, name: str = "") -> orchestration_pb2.GetMemberResponse:
        return await self._stub.GetMember(orchestration_pb2.GetMemberRequest(session=name), metadata=self._metadata)

    async def wait(self, *names: str, **fields: Any) -> orchestration_pb2.WaitForMembersResponse:
        request = orchestration_pb2.WaitForMembersRequest(sessions=names, **fields)
        return await self._stub.WaitForMembers(request, metadata=self._metadata)

    async def stop(self, name: str) -> orchestration_pb2.Member:
        request = orchestration_pb2.StopMemberRequest(session=name)
        return (await self._stub.StopMember(request, metadata=self._metadata)).session

    async def report(self, text: str) -> None:
        await self._stub.ReportResult(orchestration_pb2.ReportResultRequest(text=text), metadata=self._metadata)


async def root(client: Client, sandbox: Sandbox, path: Path, name: str, **fields: Any) -> Member:
    """Create a session without a prompt, and so without a process; the test acts as it by its
    token."""
    return Member(client, sandbox, (await client.create(path, name=name, **fields)).id)


async def refusal(call: Awaitable[Any]) -> tuple[str, str]:
    """Return reason and message of a refused call."""
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return reason_of(error), str(error.details())
    raise AssertionError("the call was answered")


def tool(called: str, /, **arguments: Any) -> Step:
    """Return a step of a scripted agent that calls one of the daemon's tools."""
    return {"mcp": {"server": "ramet", "tool": called, "arguments": arguments}}


def write(name: str, text: str) -> Step:
    return {"tool": "Write", "input": {"file_path": name, "content": text}}


def bash(command: str) -> Step:
    return {"tool": "Bash", "input": {"command": command, "description": "x"}}


def gate(path: Path) -> Step:
    """Return a step that holds the turn until a file exists."""
    return bash(f"until [ -e {path} ]; do sleep 0.05; done")


def payloads(events: list[event_pb2.Event], kind: str) -> list[event_pb2.Event]:
    return [event for event in events if event.WhichOneof("payload") == kind]


async def tool_results(client: Client, name: str) -> list[str]:
    """Return the tools' answers to a session's model."""
    events = payloads(await client.log(name), "user_message")
    return [result.text for event in events for result in event.user_message.results]


async def said(client: Client, name: str) -> list[str]:
    """Return the texts of an agent."""
    events = payloads(await client.log(name), "assistant_message")
    return [block.text for event in events for block in event.assistant_message.blocks if block.text]


async def answer(client: Client, name: str, **decision: Any) -> attention_pb2.ResolveRequestResponse:
    """Answer a request by id, or the one open request of a session; `decision` is a field of
    `Resolution`."""
    request = attention_pb2.ResolveRequestRequest(request=name, resolution=attention_pb2.Resolution(**decision))
    return await client.attention.ResolveRequest(request, metadata=client.metadata)


async def approve(client: Client, name: str, **fields: Any) -> attention_pb2.ResolveRequestResponse:
    return await answer(client, name, approve=attention_pb2.Approval(**fields))


async def requests(client: Client, name: str = "", *, closed: bool = False) -> list[attention_pb2.AttentionRequest]:
    """Return requests except reviews, of one session or of all."""
    request = attention_pb2.ListRequestsRequest(session=name, include_closed=closed)
    listed = (await client.attention.ListRequests(request, metadata=client.metadata)).requests
    return [each for each in listed if each.kind != attention_pb2.ATTENTION_KIND_REVIEW]


async def sessions(client: Client) -> dict[str, session_pb2.Session]:
    """Return all sessions by name."""
    request = session_pb2.ListSessionsRequest(page_size=1000)
    listed = await client.sessions.ListSessions(request, metadata=client.metadata)
    return {session.name: session for session in listed.sessions}
