"""`rametctl mcp` with the protocol's own client and a fake daemon."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import mcp.types
import pytest
from mcp.client.session import ClientSession
from mcp.client.stdio import StdioServerParameters, stdio_client
from ramet.v1 import session_pb2

from tests.support.client import World
from tests.support.client import world as make_world
from tests.support.eventually import eventually
from tests.support.fake_state import Refusal

TOOLS = {
    "spawn_session", "list_sessions", "get_session", "get_diff", "get_transcript", "send_message", "read_messages",
    "wait_for_sessions", "stop_session", "report_result", "request_path", "own",
}  # fmt: skip


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with make_world(tmp_path) as made:
        yield made


@asynccontextmanager
async def connected(world: World, env: Mapping[str, str] | None = None) -> AsyncIterator[ClientSession]:
    """Yield an MCP client that has started and initialized ``rametctl mcp``."""
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "rametctl", "mcp"],
        env={**world.environ, **(env or {})},
        cwd=world.cwd,
    )
    async with stdio_client(server) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        yield session


def answer(result: mcp.types.CallToolResult) -> tuple[bool, str]:
    (content,) = result.content
    assert isinstance(content, mcp.types.TextContent)
    return bool(result.is_error), content.text


def requests(*messages: dict[str, Any]) -> bytes:
    return b"".join(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n" for message in messages)


def replies(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


async def test_a_client_lists_the_tools_and_calls_them(world: World) -> None:
    world.state.session("parser")
    async with connected(world) as session:
        listed = (await session.list_tools()).tools
        is_error, text = answer(await session.call_tool("list_sessions", {}))
    assert {tool.name for tool in listed} == TOOLS
    assert all(tool.description and tool.input_schema["type"] == "object" for tool in listed)
    assert (is_error, [each["name"] for each in json.loads(text)["sessions"]]) == (False, ["parser"])


async def test_a_spawned_session_uses_the_callers_directory(world: World) -> None:
    async with connected(world) as session:
        for name in ("a", "b"):
            is_error, text = answer(await session.call_tool("spawn_session", {"prompt": "do", "name": name}))
            assert (is_error, json.loads(text)["session"]["name"]) == (False, name)
    first, second = world.state.called("SpawnSession")
    assert (first.path, second.path) == (str(world.cwd), str(world.cwd))
    assert first.request_id
    assert first.request_id != second.request_id


async def test_inside_a_session_it_acts_as_that_session(world: World) -> None:
    async with connected(world, {"RAMET_TOKEN": "t0k3n"}) as session:
        await session.call_tool("spawn_session", {"prompt": "do"})
    (call,) = [call for call in world.state.calls if call.method == "SpawnSession"]
    assert (call.request.path, call.metadata["ramet-token"]) == ("", "t0k3n")


async def test_what_the_daemon_refuses_is_an_answer_for_the_model(world: World) -> None:
    world.state.refusals["SpawnSession"] = [
        Refusal("RESOURCE_EXHAUSTED", "three deep", "CAP_REACHED", "do it yourself")
    ]
    async with connected(world) as session:
        assert answer(await session.call_tool("spawn_session", {"prompt": "do"})) == (
            True,
            "three deep; do it yourself",
        )
        assert answer(await session.call_tool("spawn_session", {}))[0]
        assert answer(await session.call_tool("get_session", {"session": "nix"}))[0]
        assert not answer(await session.call_tool("spawn_session", {"prompt": "do"}))[0]


async def test_a_call_continues_over_a_daemon_restart_and_blocks_no_other(world: World) -> None:
    world.state.session("parser")
    async with connected(world) as session:
        waiting = asyncio.create_task(session.call_tool("wait_for_sessions", {"sessions": ["parser"]}))

        await eventually(lambda: len(world.state.called("WaitForMembers")) == 1)
        assert not answer(await session.call_tool("list_sessions", {}))[0], "a wait blocks no other call"
        await asyncio.to_thread(world.daemon.stop)
        world.daemon.start()
        await eventually(lambda: len(world.state.called("WaitForMembers")) == 2)
        world.state.wait = session_pb2.WaitSessionsResponse(outcome=session_pb2.WAIT_OUTCOME_DONE)
        assert json.loads(answer(await waiting)[1])["done"] is True


async def test_without_a_daemon_a_call_says_so_and_the_next_one_finds_the_daemon(world: World) -> None:
    world.daemon.stop()
    async with connected(world) as session:
        is_error, text = answer(await session.call_tool("list_sessions", {}))
        assert (is_error, text) == (True, "no daemon is running; run: rametctl daemon start")
        world.daemon.start()
        assert not answer(await session.call_tool("list_sessions", {}))[0]


def test_standard_output_holds_answers_alone_and_the_end_of_input_is_the_end(world: World) -> None:
    result = world.run(
        "mcp",
        stdin=requests(
            {"id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18"}},
            {"method": "notifications/initialized"},
            {"id": "two", "method": "tools/call", "params": {"name": "list_sessions"}},
        ),
    )
    assert (result.code, result.err) == (0, "")
    assert {reply["id"] for reply in replies(result.out)} == {1, "two"}


def test_what_is_no_request_is_answered_as_the_protocol_says(world: World) -> None:
    noise = b"{\n\n[]\n" + requests({"id": 1, "method": "tools/call", "params": [1]}, {"id": 2, "method": "nix"})
    codes = {(reply["id"], reply["error"]["code"]) for reply in replies(world.run("mcp", stdin=noise).out)}
    assert codes == {(None, -32700), (None, -32600), (1, -32602), (2, -32601)}


def test_a_call_that_is_cancelled_is_not_answered(world: World) -> None:
    cancelled = requests(
        {"id": 1, "method": "tools/call", "params": {"name": "wait_for_sessions", "arguments": {"sessions": ["x"]}}},
        {"id": 2, "method": "tools/call", "params": {"name": "list_sessions"}},
        {"method": "notifications/cancelled", "params": {"requestId": 1}},
    )
    result = world.run("mcp", stdin=cancelled)
    world.state.wait = session_pb2.WaitSessionsResponse(outcome=session_pb2.WAIT_OUTCOME_DONE)
    assert [reply["id"] for reply in replies(result.out)] == [2]
