import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.agents import CLAUDE, private_environment, running, script, scripted_model
from tests.support.eventually import eventually


@pytest.fixture
async def port() -> AsyncIterator[int]:
    async with scripted_model() as number:
        yield number


def request(port: int, path: str, body: dict[str, Any] | None = None) -> tuple[int, bytes]:
    data = None if body is None else json.dumps(body).encode()
    asked = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data=data)
    try:
        with urllib.request.urlopen(asked, timeout=20) as reply:  # noqa: S310
            return reply.status, reply.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


async def ask(port: int, text: str, **more: Any) -> tuple[int, Any]:
    body = {"model": "m", "messages": [{"role": "user", "content": text}], "tools": [{"name": "Bash"}], **more}
    status, answer = await asyncio.to_thread(request, port, "/v1/messages?beta=true", body)
    return status, answer if more.get("stream") else json.loads(answer)


async def test_a_plain_request_gets_a_complete_message(port: int) -> None:
    status, message = await ask(port, script({"text": "hi", "tool": "Bash", "input": {"command": "ls"}}))
    assert status == 200
    assert [block["type"] for block in message["content"]] == ["text", "tool_use"]
    assert message["stop_reason"] == "tool_use"


async def test_a_streaming_request_gets_server_sent_events(port: int) -> None:
    status, stream = await ask(port, script({"text": "hi"}), stream=True)
    assert status == 200
    kinds = [line[7:] for line in stream.decode().splitlines() if line.startswith("event: ")]
    assert kinds[0] == "message_start"
    assert kinds[-1] == "message_stop"


async def test_an_injected_error_is_given_as_often_as_it_says(port: int) -> None:
    prompt = script({"error": 529, "times": 2}, {"text": "at last"})
    answers = [await ask(port, prompt) for _ in range(3)]
    assert [status for status, _ in answers] == [529, 529, 200]
    assert answers[0][1]["error"]["type"] == "overloaded_error"


async def test_a_conversation_continues_after_a_restart_of_the_model() -> None:
    prompt = script({"tool": "Bash", "input": {}}, {"text": "second"})
    async with scripted_model() as port:
        _, first = await ask(port, prompt)
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "x"}]}
    messages = [{"role": "user", "content": prompt}, {"role": "assistant", "content": first["content"]}, result]
    async with scripted_model() as port:
        _, second = await ask(port, "", messages=messages)
    assert second["content"] == [{"type": "text", "text": "second"}]


async def test_a_request_that_can_run_no_tools_gets_words(port: int) -> None:
    _, message = await ask(port, script({"tool": "Bash", "input": {}}), tools=[])
    assert message["content"] == [{"type": "text", "text": "ok"}]


async def test_the_log_has_every_request_and_a_hanging_one_without_status(port: int) -> None:
    await ask(port, script({"text": "hi"}))
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": script({"hang": True})}]}).encode()
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"POST /v1/messages HTTP/1.1\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))

    async def log() -> Any:
        entries = json.loads((await asyncio.to_thread(request, port, "/requests"))[1])
        return entries if len(entries) == 2 else None

    entries: Any = await eventually(log)
    first, second = entries
    assert (first["status"], first["messages"], first["model"]) == (200, 1, "m")
    assert second["last_user"].startswith("please DO:")
    assert second["status"] is None
    writer.close()
    await writer.wait_closed()


async def test_tokens_are_counted_and_other_paths_are_unknown(port: int) -> None:
    status, body = await asyncio.to_thread(request, port, "/v1/messages/count_tokens", {"messages": []})
    assert (status, json.loads(body)["input_tokens"] > 0) == (200, True)
    assert (await asyncio.to_thread(request, port, "/v1/else"))[0] == 404


async def test_one_connection_serves_many_requests(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for _ in range(50):
        writer.write(b"GET /requests HTTP/1.1\r\n\r\n")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
        assert await reader.readexactly(2) == b"[]"
    writer.close()
    await writer.wait_closed()


async def test_prompts_that_read_like_a_persons_are_served_by_the_script_file(tmp_path: Path) -> None:
    routes, where = tmp_path / "routes.json", tmp_path / "port"
    routes.write_text(json.dumps([{"when": "add a --version flag", "steps": [{"text": "added"}]}]))
    async with scripted_model("--script", str(routes), "--port-file", str(where)) as port:
        assert where.read_text() == f"{port}\n"
        _, message = await ask(port, "Please add a --version flag to the tool")
    assert message["content"][0]["text"] == "added"


@pytest.mark.real_cli
async def test_the_real_cli_runs_tools_retries_and_counts_costs(tmp_path: Path, port: int) -> None:
    environment = private_environment(tmp_path, port)
    async with running(tmp_path, program=[str(CLAUDE)], environment=environment) as host:
        write = {"tool": "Write", "input": {"file_path": "$CWD/a.txt", "content": "hello"}}
        check = {"tool": "Bash", "input": {"command": "wc -c a.txt", "description": "Count"}}
        await host.prompt(script(write, check, {"error": 529}, {"text": "finished", "usage": {"input_tokens": 9000}}))
        first = await host.result(0)
        await host.prompt("and now?")
        second = await host.result(1)
        assert await host.end() == 0
    assert (tmp_path / "repo" / "a.txt").read_text() == "hello"
    assert (first["subtype"], first["result"], second["result"]) == ("success", "finished", "done")
    assert first["usage"]["input_tokens"] == 2 * 1000 + 9000
    assert second["total_cost_usd"] > first["total_cost_usd"] > 0
    retries = [frame for frame in host.frames if frame.get("subtype") == "api_retry"]
    assert [frame["error_status"] for frame in retries] == [529]
    assert any("5 a.txt" in json.dumps(frame) for frame in host.frames if frame["type"] == "user")
