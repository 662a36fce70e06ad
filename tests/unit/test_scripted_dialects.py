import json
from typing import Any

import pytest
from ramet_demo.scripted.conversation import next_step
from ramet_demo.scripted.dialects import DIALECTS, translate
from ramet_demo.scripted.messages import message

from tests.support.agents import script

PROMPT = script({"tool": "Bash", "input": {"command": "ls"}}, {"text": "second"})
CHAT = [
    {"role": "developer", "content": "You are an agent."},
    {"role": "user", "content": [{"type": "text", "text": PROMPT}]},
    {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]},
    {"role": "tool", "tool_call_id": "1", "content": 'DO:[{"text": "no script of a person"}]'},
    {"role": "assistant", "content": "second"},
]
RESPONSES = [
    {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "You are an agent."}]},
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": PROMPT}]},
    {"type": "reasoning", "summary": []},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I call"}]},
    {"type": "function_call", "call_id": "1", "name": "exec_command", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "1", "output": 'DO:[{"text": "no script of a person"}]'},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "second"}]},
]
GEMINI = [
    {"role": "user", "parts": [{"text": PROMPT}]},
    {"role": "model", "parts": [{"functionCall": {"name": "run_shell_command", "args": {}}}]},
    {"role": "user", "parts": [{"functionResponse": {"name": "run_shell_command", "response": {"output": "DO:[]"}}}]},
    {"role": "model", "parts": [{"text": "second"}]},
]
BODIES = (("messages", CHAT, (2, 4, 5)), ("input", RESPONSES, (2, 6, 7)), ("contents", GEMINI, (1, 3, 4)))
CASES = [pytest.param(dialect, *case, id=case[0]) for dialect, case in zip(DIALECTS, BODIES, strict=True)]


@pytest.mark.parametrize(("dialect", "key", "items", "cuts"), CASES)
def test_a_conversation_has_the_same_position_in_every_api(
    dialect: Any, key: str, items: list[Any], cuts: tuple[int, int, int]
) -> None:
    steps = [next_step(dialect.read({key: items[:cut]})["messages"]) for cut in cuts]
    assert steps == [{"tool": "Bash", "input": {"command": "ls"}}, {"text": "second"}, {"text": "done"}]


@pytest.mark.parametrize(("dialect", "key", "items", "cuts"), CASES)
def test_a_streamed_reply_has_the_text_and_call_of_the_complete_one(
    dialect: Any, key: str, items: list[Any], cuts: tuple[int, int, int]
) -> None:
    del key, items, cuts
    reply = message("m", {"text": "hello", "tool": "Bash", "input": {"command": "ls"}})
    content, closing = (list(events) for events in dialect.spell(reply))
    assert closing, "a client would wait for the end"
    for spelled in (json.dumps(dialect.whole(reply)), json.dumps([*content, *closing])):
        assert '"hello"' in spelled
        assert '"Bash"' in spelled
        assert "ls" in spelled
        assert "1000" in spelled, "tokens"


def offer(name: str, *properties: str, namespace: str = "", **required: dict[str, Any]) -> dict[str, Any]:
    schema = {"properties": {**{each: {"type": "string"} for each in properties}, **required}, "required": [*required]}
    return {"name": name, "namespace": namespace, "schema": schema}


WRITE = {"file_path": "a.txt", "content": "x"}


@pytest.mark.parametrize(
    ("name", "given", "offered", "called"),
    [
        ("Write", WRITE, offer("write", "filePath", "content"), ("write", {"filePath": "a.txt", "content": "x"})),
        ("Write", WRITE, offer("Create", "file_path", "content"), ("Create", WRITE)),
        ("Bash", {"command": "ls"}, offer("exec_command", "cmd"), ("exec_command", {"cmd": "ls"})),
        (
            "Bash",
            {"command": "ls"},
            offer("Execute", "command", risk={"type": "string", "enum": ["low"]}, why={"type": "string"}, n={"type": "integer"}),
            ("Execute", {"command": "ls", "risk": "low", "why": "scripted", "n": 0}),
        ),
        ("mcp__ramet__spawn_session", {}, offer("ramet_spawn_session"), ("ramet_spawn_session", {})),
        ("mcp__ramet__spawn_session", {}, offer("spawn_session", namespace="mcp__ramet"), ("spawn_session", {})),
        ("mcp__other__spawn_session", {}, offer("ramet_spawn_session"), ("mcp__other__spawn_session", {})),
        ("Unknown", {"a": 1}, offer("write"), ("Unknown", {"a": 1})),
    ],
)  # fmt: skip
def test_a_scripted_call_takes_the_name_and_the_arguments_that_the_agent_offers(
    name: str, given: dict[str, Any], offered: dict[str, Any], called: tuple[str, dict[str, Any]]
) -> None:
    call = translate(name, given, [offered])
    assert (call["name"], call["input"]) == called
    assert call.get("namespace", "") == offered["namespace"]


def test_an_agent_that_writes_with_its_shell_gets_a_command_that_asks() -> None:
    call = translate("Write", WRITE, [offer("exec_command", "cmd", "sandbox_permissions", "justification")])
    assert call["input"]["cmd"] == "cat > a.txt <<'END'\nx\nEND"
    assert call["input"]["sandbox_permissions"] == "require_escalated"
