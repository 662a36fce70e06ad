import asyncio
import json
import os
import signal
import uuid
from pathlib import Path
from typing import Any

import psutil
import pytest
from claude_agent_sdk import (
    ClaudeAgentOptions,
    ClaudeSDKClient,
    HookMatcher,
    PermissionResultAllow,
    ResultMessage,
    ToolPermissionContext,
    create_sdk_mcp_server,
    tool,
)

from tests.support.agents import SCRIPTED, Frame, Host, private_environment, running, script, write_wrapper
from tests.support.eventually import eventually

BASH: Frame = {"tool": "Bash", "input": {"command": "echo out; exit 3"}}
HANG: Frame = {"tool": "Bash", "input": {"command": "echo $$ > pid; exec tail -f /dev/null"}}
HOOKS = {
    event: [{"matcher": None, "hookCallbackIds": [f"hook_{number}"], "onFailure": "block"}]
    for number, event in enumerate(("PreToolUse", "PostToolUse", "UserPromptSubmit", "Stop"))
}


def texts(host: Host) -> list[str]:
    blocks = [frame["message"]["content"][0] for frame in host.frames if frame["type"] == "assistant"]
    return [block["text"] for block in blocks if block["type"] == "text"]


def results(host: Host) -> list[Frame]:
    """Return the tool results that the agent sent."""
    contents = [frame["message"]["content"] for frame in host.frames if frame["type"] == "user"]
    return [content[0] for content in contents if isinstance(content, list) and content[0]["type"] == "tool_result"]


async def started(home: Path) -> int:
    """Return the pid that `HANG` wrote."""
    path = home / "repo" / "pid"
    return int(await eventually(lambda: path.exists() and path.read_text().strip()))


async def gone(pid: int) -> None:
    def is_gone() -> bool:
        try:
            return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True

    await eventually(is_gone)


async def test_the_wrapper_prints_claudes_version(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(write_wrapper(tmp_path), "--version", stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    assert output == b"2.1.332 (Scripted agent)\n"


async def test_an_idle_agent_is_small(tmp_path: Path) -> None:
    async with running(tmp_path) as host:
        await host.control("initialize", hooks=None)
        assert psutil.Process(host.process.pid).memory_info().rss < 13 * 2**20
        assert await host.end() == 0


async def test_a_turn_comes_in_the_order_of_the_real_one(tmp_path: Path) -> None:
    async with running(tmp_path) as host:
        await host.control("initialize", hooks=HOOKS)
        since = len(host.frames)
        await host.prompt(script(BASH, {"text": "end"}))
        await host.idle(since=since)
    assert [kind for kind in host.kinds(since) if kind != "control_response"] == [
        "session_state_changed:running",
        "command_lifecycle:queued",
        "command_lifecycle:started",
        "hook_callback:UserPromptSubmit",
        "init",
        "user",
        "assistant",
        "hook_callback:PreToolUse",
        "session_state_changed:requires_action",
        "can_use_tool",
        "session_state_changed:running",
        "user",
        "assistant",
        "hook_callback:Stop",
        "result",
        "command_lifecycle:completed",
        "session_state_changed:idle",
    ]
    assert results(host)[0]["content"] == "Exit code 3\nout"


@pytest.mark.parametrize(
    ("flags", "step", "asked"),
    [
        ([], {"tool": "Read", "input": {"file_path": "x"}}, False),
        (
            ["--permission-mode", "acceptEdits"],
            {"tool": "Write", "input": {"file_path": "$CWD/x", "content": ""}},
            False,
        ),
        (["--permission-mode", "acceptEdits"], BASH, True),
        (["--allowedTools", "Bash(echo out:*)"], BASH, False),
        (["--permission-mode", "bypassPermissions"], BASH, False),
        (["--permission-mode", "bypassPermissions"], {"ask": "Which?"}, True),
    ],
)
async def test_it_asks_when_mode_and_rules_leave_it_open(
    tmp_path: Path, flags: list[str], step: Frame, asked: bool
) -> None:
    async with running(tmp_path, *flags) as host:
        await host.prompt(script(step))
        await host.result()
    assert ("can_use_tool" in host.kinds()) is asked


async def test_a_denied_tool_does_not_run_and_its_result_says_so(tmp_path: Path) -> None:
    async with running(tmp_path) as host:
        host.answers = lambda request: {"behavior": "deny", "message": "not today"}
        await host.prompt(script({"tool": "Bash", "input": {"command": "touch made"}}))
        result = await host.result()
    assert results(host)[0]["content"] == "not today"
    assert result["permission_denials"][0]["tool_name"] == "Bash"
    assert not (tmp_path / "repo" / "made").exists()


async def test_an_answer_may_change_the_input_and_add_a_rule(tmp_path: Path) -> None:
    rule = {"type": "addRules", "behavior": "allow", "destination": "session", "rules": [{"toolName": "Bash"}]}
    async with running(tmp_path) as host:
        allow = {"behavior": "allow", "updatedInput": {"command": "echo changed"}, "updatedPermissions": [rule]}
        host.answers = lambda request: allow
        await host.prompt(script(BASH, BASH))
        await host.result()
    assert host.kinds().count("can_use_tool") == 1
    assert [result["content"] for result in results(host)] == ["changed", "Exit code 3\nout"]


async def test_questions_and_plans_are_put_to_the_host(tmp_path: Path) -> None:
    async with running(tmp_path, "--permission-mode", "plan") as host:

        def answer(request: Frame) -> Frame:
            return {"behavior": "allow", "updatedInput": {**request["input"], "answers": {"Which?": "yes"}}}

        host.answers = answer
        await host.prompt(script({"ask": "Which?"}, {"plan": "# steps"}))
        await host.result()
    assert 'answered: "Which?"="yes"' in results(host)[0]["content"]
    assert "approved" in results(host)[1]["content"]
    assert [frame["permissionMode"] for frame in host.frames if frame.get("subtype") == "status"] == ["default"]


async def test_a_failed_hook_that_guards_keeps_the_tool_from_running(tmp_path: Path) -> None:
    async with running(tmp_path, "--allowedTools", "Bash") as host:
        host.answers = lambda request: None
        await host.control("initialize", hooks={"PreToolUse": HOOKS["PreToolUse"]})
        await host.prompt(script(BASH))
        call = await host.request("hook_callback")
        body = {"subtype": "error", "request_id": call["request_id"], "error": "boom"}
        await host.send({"type": "control_response", "response": body})
        await host.result()
    assert results(host)[0]["content"] == "PreToolUse hook failed: boom"


async def test_a_reconnecting_host_gets_the_open_permission_request(tmp_path: Path) -> None:
    async with running(tmp_path) as host:
        host.answers = lambda request: None
        first = await host.control("initialize", hooks=None)
        assert first["pending_permission_requests"] == []
        await host.prompt(script(BASH))
        asked = await host.request("can_use_tool")
        again = await host.control("initialize", hooks=None)
        assert again["pending_permission_requests"] == [asked]
        assert again["response"]["session_state"] == "requires_action"
        await host.answer(asked, {"behavior": "allow", "updatedInput": asked["request"]["input"]})
        assert (await host.result())["subtype"] == "success"


async def test_a_host_with_its_own_hooks_retires_open_hook_calls(tmp_path: Path) -> None:
    async with running(tmp_path) as host:
        host.answers = lambda request: None
        await host.control("initialize", hooks={"PreToolUse": HOOKS["PreToolUse"]})
        await host.prompt(script(BASH))
        call = await host.request("hook_callback")
        await host.control("initialize", hooks={})
        cancelled = await host.frame(lambda frame: frame["type"] == "control_cancel_request")
        await host.result()
    assert cancelled["request_id"] == call["request_id"]
    assert results(host)[0]["content"].startswith("The SDK host reconnected before its PreToolUse hook answered")


async def test_the_hosts_mcp_servers_are_greeted_and_called(tmp_path: Path) -> None:
    configuration = '{"mcpServers": {"host": {"type": "sdk", "name": "host"}}}'
    async with running(tmp_path, "--mcp-config", configuration) as host:
        await host.control("initialize", hooks=None)
        await host.prompt(script({"mcp": {"server": "host", "tool": "greet", "arguments": {"name": "kid"}}}))
        await host.result()
    init = next(frame for frame in host.frames if frame.get("subtype") == "init")
    assert init["mcp_servers"] == [{"name": "host", "status": "connected", "source": "sdk"}]
    assert "mcp__host__greet" in init["tools"]
    messages = [
        frame["request"]["message"] for frame in host.frames if frame.get("request", {}).get("subtype") == "mcp_message"
    ]
    assert [message["method"] for message in messages] == [
        "initialize",
        "notifications/initialized",
        "tools/list",
        "tools/call",
    ]
    assert messages[-1]["params"]["arguments"] == {"name": "kid"}
    assert results(host)[0]["content"] == [{"type": "text", "text": "hello"}]


async def test_events_are_numbered_and_none_is_lost(tmp_path: Path) -> None:
    async with running(tmp_path) as host:
        await host.prompt(script({"events": 200, "per_second": 2000, "bytes": 300}))
        await host.result()
    assert [int(text.split()[0]) for text in texts(host)] == list(range(1, 201))
    assert {len(text) for text in texts(host)} == {300}
    said = [frame for frame in host.frames if frame["type"] == "assistant"]
    assert len({frame["uuid"] for frame in said}) == len({frame["message"]["id"] for frame in said}) == 200
    (transcript,) = (tmp_path / "configuration" / "projects").rglob("*.jsonl")
    lines = [line for line in map(json.loads, transcript.read_text().splitlines()) if line["type"] == "assistant"]
    assert [(line["uuid"], line["message"]) for line in lines] == [(frame["uuid"], frame["message"]) for frame in said]
    assert [line["parentUuid"] for line in lines[1:]] == [line["uuid"] for line in lines[:-1]]


async def test_oddities_are_sent_unchanged(tmp_path: Path) -> None:
    odd = {
        "noise": "not json",
        "unknown": {"type": "novel", "x": 1},
        "rate_limit": {"status": "rejected"},
        "flood": 200_000,
    }
    async with running(tmp_path) as host:
        await host.prompt(script(odd))
        await host.result()
    assert host.noise == [b"not json\n"]
    assert next(frame for frame in host.frames if frame["type"] == "novel")["x"] == 1
    assert (
        next(frame for frame in host.frames if frame["type"] == "rate_limit_event")["rate_limit_info"]["status"]
        == "rejected"
    )
    assert sum(len(text) for text in texts(host)) == 200_000


@pytest.mark.parametrize(("how", "code"), [(7, 7), ("SIGKILL", -signal.SIGKILL)])
async def test_it_exits_as_scripted(tmp_path: Path, how: int | str, code: int) -> None:
    async with running(tmp_path) as host:
        await host.prompt(script({"stderr": "last words", "die": how}))
        assert await host.ended() == code
        assert await host.errors() == "last words\n"


async def test_control_is_served_while_it_hangs_and_an_interrupt_ends_the_turn(tmp_path: Path) -> None:
    async with running(tmp_path) as host:
        await host.prompt(script({"text": "a", "hang": True}))
        await host.frame(lambda frame: frame["type"] == "assistant")
        assert (await host.control("set_permission_mode", mode="acceptEdits"))["response"] == {"mode": "acceptEdits"}
        assert (await host.control("set_model", model="other"))["response"] == {"model": "other"}
        assert (await host.control("get_context_usage"))["response"]["totalTokens"] == 1000
        assert (await host.control("novel"))["error"] == "Unsupported control request subtype: novel"
        queued = await host.prompt("later")
        assert (await host.control("interrupt"))["response"] == {"still_queued": [queued]}
        first, second = await host.result(0), await host.result(1)
    assert (first["subtype"], first["terminal_reason"]) == ("error_during_execution", "aborted_streaming")
    assert (second["subtype"], second["user_message_uuids"]) == ("success", [queued])


async def test_an_interrupt_kills_the_running_tool(tmp_path: Path) -> None:
    async with running(tmp_path, "--allowedTools", "Bash") as host:
        await host.prompt(script(HANG))
        pid = await started(tmp_path)
        assert os.getsid(pid) == pid  # as the real one's tools, in another process group
        await host.control("interrupt")
        assert (await host.result())["terminal_reason"] == "aborted_tools"
        await gone(pid)
    assert results(host)[0]["is_error"]


async def test_an_interrupt_withdraws_the_open_question(tmp_path: Path) -> None:
    async with running(tmp_path) as host:
        host.answers = lambda request: None
        await host.prompt(script(BASH))
        asked = await host.request("can_use_tool")
        await host.control("interrupt")
        await host.result()
    cancelled = next(frame for frame in host.frames if frame["type"] == "control_cancel_request")
    assert cancelled["request_id"] == asked["request_id"]


async def test_the_end_of_a_background_task_starts_a_turn(tmp_path: Path) -> None:
    async with running(tmp_path) as host:
        await host.prompt(script({"background": 0.05, "text": "first"}))
        await host.result(1)
        assert await host.end() == 0
    kinds = host.kinds()
    assert kinds.index("task_started") < kinds.index("result") < kinds.index("task_notification")
    assert host.kinds().count("init") == 2
    last = [frame for frame in host.frames if frame["type"] == "result"][-1]
    assert (last["origin"]["kind"], last["result"]) == ("task-notification", "followup")
    assert "user_message_uuids" not in last


async def test_a_command_in_the_background_can_be_stopped(tmp_path: Path) -> None:
    async with running(tmp_path, "--allowedTools", "Bash") as host:
        await host.prompt(script({"tool": "Bash", "input": {**HANG["input"], "run_in_background": True}}))
        await host.result()
        pid = await started(tmp_path)
        task = next(frame for frame in host.frames if frame.get("subtype") == "task_started")
        await host.control("stop_task", task_id=task["task_id"])
        await gone(pid)
        assert await host.end() == 0
    notice = next(frame for frame in host.frames if frame.get("subtype") == "task_notification")
    assert notice["status"] == "stopped"


async def test_what_it_spawned_outlives_it(tmp_path: Path) -> None:
    async with running(tmp_path) as host:
        await host.prompt(script({"spawn": HANG["input"]["command"]}))
        await host.result()
        assert await host.end() == 0
    pid = await started(tmp_path)
    assert psutil.pid_exists(pid)
    os.kill(pid, signal.SIGKILL)
    await gone(pid)


async def test_at_the_end_of_stdin_it_finishes_the_turn(tmp_path: Path) -> None:
    async with running(tmp_path) as host:
        await host.prompt(script({"sleep": 0.1, "text": "finished"}))
        await host.frame(lambda frame: frame.get("subtype") == "init")
        assert await host.end() == 0
    assert texts(host) == ["finished"]
    assert host.kinds()[-1] == "session_state_changed:idle"


async def test_sigterm_kills_the_tool_and_saves_the_cost(tmp_path: Path) -> None:
    name = str(uuid.uuid4())
    async with running(tmp_path, "--session-id", name, "--allowedTools", "Bash") as host:
        await host.prompt(script(HANG, {"text": "after"}))
        pid = await started(tmp_path)
        host.process.terminate()
        assert await host.ended() == 143
        await gone(pid)
    assert results(host)[0]["content"] == "Exit code 137"
    async with running(tmp_path, f"--resume={name}") as host:
        await host.prompt("go on")
        assert (await host.result())["total_cost_usd"] == pytest.approx(0.01)


async def test_a_resumed_session_knows_its_turns_and_the_messages_it_had(tmp_path: Path) -> None:
    name = str(uuid.uuid4())
    async with running(tmp_path, "--session-id", name) as host:
        first = await host.prompt("one")
        await host.result()
        assert await host.prompt("one", first) == first
        await host.prompt(script({"turns": True}))
        await host.result(1)
        assert await host.end() == 0
        assert texts(host) == ["ok", "turn 2"]
    async with running(tmp_path, f"--resume={name}") as host:
        await host.prompt("one", first)
        await host.prompt(script({"turns": True}))
        await host.result()
        assert texts(host) == ["turn 3"]
        done = [frame["command_uuid"] for frame in host.frames if frame.get("state") == "completed"]
        assert first in done
    async with running(tmp_path, f"--resume={name}", "--fork-session") as host:
        await host.prompt(script({"turns": True}))
        assert (await host.result())["session_id"] != name
        assert texts(host) == ["turn 4"]


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
async def test_an_interrupted_turn_is_resumed(tmp_path: Path, how: signal.Signals) -> None:
    name = str(uuid.uuid4())
    steps: list[Frame] = [{"text": "one"}, {"text": "two", "hang": True}, {"text": "three"}]
    async with running(tmp_path, "--session-id", name) as host:
        prompt = await host.prompt(script(*steps))
        await host.frame(lambda frame: frame["type"] == "assistant" and frame["message"]["content"][0]["text"] == "two")
        host.process.send_signal(how)
        await host.ended()
    again = private_environment(tmp_path, CLAUDE_CODE_RESUME_INTERRUPTED_TURN="1")
    async with running(tmp_path, f"--resume={name}", environment=again) as host:
        await host.control("initialize", hooks=HOOKS)
        await host.frame(lambda frame: frame["type"] == "assistant")
        assert texts(host) == ["two"]
        await host.control("interrupt")
        result = await host.result()
    assert (result["resume_reason"], result["user_message_uuids"]) == ("interrupted_turn", [prompt])


async def test_a_session_that_does_not_exist_cannot_be_resumed(tmp_path: Path) -> None:
    async with running(tmp_path, "--resume=nobody") as host:
        assert await host.ended() == 1
        assert await host.errors() == "No conversation found with session ID: nobody\n"
    assert host.frames[0]["subtype"] == "error_during_execution"
    assert host.frames[0]["errors"] == ["No conversation found with session ID: nobody"]


async def test_the_id_of_a_session_is_given_once(tmp_path: Path) -> None:
    name = str(uuid.uuid4())
    async with running(tmp_path, "--session-id", name) as host:
        await host.prompt("hi")
        await host.result()
        await host.end()
    async with running(tmp_path, "--session-id", name) as host:
        assert await host.ended() == 1
        assert await host.errors() == f"Error: Session ID {name} is already in use.\n"
    assert host.frames == []


async def test_an_agent_whose_host_vanishes_ends(tmp_path: Path) -> None:
    (tmp_path / "repo").mkdir()
    read, write = os.pipe()
    environment: dict[str, Any] = private_environment(tmp_path)
    process = await asyncio.create_subprocess_exec(
        *SCRIPTED, stdin=asyncio.subprocess.PIPE, stdout=write, cwd=tmp_path / "repo", env=environment
    )
    os.close(write)
    os.close(read)
    assert process.stdin is not None
    process.stdin.write(b'{"type": "user", "message": {"role": "user", "content": "hi"}}\n')
    process.stdin.close()
    assert await process.wait() == 1


async def test_the_sdk_takes_it_for_the_real_one(tmp_path: Path) -> None:
    seen: list[str] = []

    @tool("greet", "Greets", {"name": str})
    async def greet(arguments: dict[str, Any]) -> dict[str, Any]:
        seen.append(arguments["name"])
        return {"content": [{"type": "text", "text": "hello"}]}

    async def hook(data: Any, name: str | None, context: Any) -> Any:
        seen.append(data["hook_event_name"])
        return {}

    async def can_use_tool(name: str, given: dict[str, Any], context: ToolPermissionContext) -> PermissionResultAllow:
        seen.append(name)
        return PermissionResultAllow(updated_input=given)

    (tmp_path / "repo").mkdir()
    options = ClaudeAgentOptions(
        cli_path=write_wrapper(tmp_path),
        cwd=tmp_path / "repo",
        env=private_environment(tmp_path),
        mcp_servers={"host": create_sdk_mcp_server("host", tools=[greet])},
        hooks={"PreToolUse": [HookMatcher(hooks=[hook])]},
        can_use_tool=can_use_tool,
    )
    async with ClaudeSDKClient(options) as client:
        await client.query(script({"mcp": {"server": "host", "tool": "greet", "arguments": {"name": "kid"}}}))
        messages = [message async for message in client.receive_response()]
    assert seen == ["PreToolUse", "mcp__host__greet", "kid"]
    assert isinstance(messages[-1], ResultMessage)
    assert messages[-1].result == "done"
