"""Other APIs of models: convert chat completions, Responses and Gemini's generateContent to the
Messages API and back."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from ramet_demo.scripted.messages import Events

Body = dict[str, Any]

_PLACEHOLDERS = {"boolean": False, "integer": 0, "number": 0, "array": [], "object": {}}
_SAME = {
    "Bash": ("bash", "exec_command", "run_shell_command", "Execute", "shell"),
    "Write": ("write", "write_file", "Create", "create"),
}
_NAMES = {
    "command": ("command", "cmd"),
    "file_path": ("file_path", "filePath", "path"),
    "content": ("content", "file_text"),
}


class Dialect(NamedTuple):
    """One API. ``spell`` returns the events of a reply, and separately the closing ones, which end
    it."""

    pattern: re.Pattern[str]  # of the path; a group "model" where the path names it
    read: Callable[[Body], Body]  # the request's body as one of the Messages API
    whole: Callable[[Body], Body]  # a reply that is not streamed
    spell: Callable[[Body], tuple[Events, Events]]


def _texts(content: object) -> Iterator[str]:
    if isinstance(content, str):
        yield content
    elif isinstance(content, list):
        yield from (
            block["text"] for block in content if isinstance(block, dict) and isinstance(block.get("text"), str)
        )


def _message(role: str, texts: Iterable[str], results: bool = False) -> Body:
    """Keep several texts of one message separate: a prompt and a reminder beside it are two."""
    blocks = [{"type": "text", "text": text} for text in texts]
    return {"role": role, "content": [*([{"type": "tool_result"}] if results else []), *blocks]}


def _merged(messages: Iterable[Body]) -> list[Body]:
    """Join the text and calls of one reply, which some APIs represent as several items."""
    joined: list[Body] = []
    for message in messages:
        if message["role"] == "assistant" and joined and joined[-1]["role"] == "assistant":
            joined[-1]["content"] += message["content"]
        else:
            joined.append(message)
    return joined


def _blocks(message: Body) -> tuple[str, list[Body]]:
    """Return the text and the tool calls of a reply."""
    text = "".join(block["text"] for block in message["content"] if block["type"] == "text")
    return text, [block for block in message["content"] if block["type"] == "tool_use"]


def _nothing() -> Events:
    yield from ()


# Chat completions


def _chat_read(body: Body) -> Body:
    roles = {"developer": "system", "function": "tool"}
    messages = []
    for message in body["messages"]:
        role = roles.get(message["role"], message["role"])
        texts = () if role == "tool" else _texts(message.get("content"))
        messages.append(_message("user" if role == "tool" else role, texts, results=role == "tool"))
    tools = [
        {"name": tool["function"]["name"], "schema": tool["function"].get("parameters", {})}
        for tool in body.get("tools", ())
    ]
    return {**body, "messages": messages, "tools": tools}


def _chat_usage(message: Body) -> Body:
    usage = message["usage"]
    read, wrote = usage["input_tokens"], usage["output_tokens"]
    return {"prompt_tokens": read, "completion_tokens": wrote, "total_tokens": read + wrote}


def _chat_calls(calls: list[Body]) -> list[Body]:
    return [
        {"index": at, "id": call["id"], "type": "function",
         "function": {"name": call["name"], "arguments": json.dumps(call["input"])}}
        for at, call in enumerate(calls)
    ]  # fmt: skip


def _chat_finish(message: Body) -> str:
    return "tool_calls" if message["stop_reason"] == "tool_use" else "stop"


def _chat_head(message: Body, kind: str) -> Body:
    return {"id": message["id"], "object": kind, "created": 0, "model": message["model"]}


def _chat_whole(message: Body) -> Body:
    text, calls = _blocks(message)
    said = {"role": "assistant", "content": text, **({"tool_calls": _chat_calls(calls)} if calls else {})}
    choice = {"index": 0, "message": said, "finish_reason": _chat_finish(message)}
    return {**_chat_head(message, "chat.completion"), "choices": [choice], "usage": _chat_usage(message)}


def _chat_spell(message: Body) -> tuple[Events, Events]:
    head = _chat_head(message, "chat.completion.chunk")
    text, calls = _blocks(message)

    def chunk(delta: Body, finish: str | None = None) -> tuple[str, Body]:
        return "", {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

    def content() -> Events:
        yield chunk({"role": "assistant", "content": text})
        if calls:
            yield chunk({"tool_calls": _chat_calls(calls)})

    return content(), iter(
        [chunk({}, _chat_finish(message)), ("", {**head, "choices": [], "usage": _chat_usage(message)})]
    )


# Responses


def _responses_read(body: Body) -> Body:
    items = body["input"] if isinstance(body["input"], list) else [{"role": "user", "content": body["input"]}]
    messages = []
    for item in items:
        kind = item.get("type", "message")
        if kind == "message":
            role = "system" if item["role"] == "developer" else item["role"]
            messages.append(_message(role, _texts(item.get("content"))))
        elif kind.endswith("_output"):
            messages.append(_message("user", (), results=True))
        else:
            messages.append(_message("assistant", ()))
    return {**body, "messages": _merged(messages), "tools": list(_responses_tools(body.get("tools", ()), ""))}


def _responses_tools(tools: Iterable[Body], namespace: str) -> Iterator[Body]:
    for tool in tools:
        if tool.get("type") == "namespace":
            yield from _responses_tools(tool.get("tools", ()), tool["name"])
        elif tool.get("type") == "function":
            yield {"name": tool["name"], "namespace": namespace, "schema": tool.get("parameters", {})}


def _responses_items(message: Body) -> list[Body]:
    text, calls = _blocks(message)
    said = {
        "type": "message", "id": f"{message['id']}_0", "role": "assistant", "status": "completed",
        "content": [{"type": "output_text", "text": text, "annotations": []}],
    }  # fmt: skip
    return [
        *([said] if text or not calls else []),
        *(
            {
                "type": "function_call", "id": f"fc_{call['id']}", "call_id": call["id"], "name": call["name"],
                "arguments": json.dumps(call["input"]), "status": "completed",
                **({"namespace": call["namespace"]} if call.get("namespace") else {}),
            }
            for call in calls
        ),
    ]  # fmt: skip


def _responses_whole(message: Body) -> Body:
    usage = message["usage"]
    read, wrote, cached = usage["input_tokens"], usage["output_tokens"], usage["cache_read_input_tokens"]
    return {
        "id": message["id"], "object": "response", "created_at": 0, "model": message["model"], "status": "completed",
        "output": _responses_items(message),
        "usage": {
            "input_tokens": read + cached, "input_tokens_details": {"cached_tokens": cached},
            "output_tokens": wrote, "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": read + cached + wrote,
        },
    }  # fmt: skip


def _responses_spell(message: Body) -> tuple[Events, Events]:
    whole = _responses_whole(message)

    def content() -> Events:
        yield "response.created", {"response": {**whole, "status": "in_progress", "output": [], "usage": None}}
        for at, item in enumerate(whole["output"]):
            yield "response.output_item.added", {"output_index": at, "item": {**item, "status": "in_progress"}}
            if item["type"] == "message":
                place = {"item_id": item["id"], "output_index": at, "content_index": 0}
                yield "response.output_text.delta", {**place, "delta": item["content"][0]["text"]}
            yield "response.output_item.done", {"output_index": at, "item": item}

    return content(), iter([("response.completed", {"response": whole})])


# Gemini


def _gemini_read(body: Body) -> Body:
    messages = []
    for entry in body["contents"]:
        parts = entry.get("parts", ())
        role = "assistant" if entry.get("role") == "model" else "user"
        messages.append(_message(role, _texts(parts), results=any("functionResponse" in part for part in parts)))
    declared = [each for tool in body.get("tools", ()) for each in tool.get("functionDeclarations", ())]
    schemas = [
        {"name": each["name"], "schema": each.get("parametersJsonSchema") or each.get("parameters", {})}
        for each in declared
    ]
    return {
        "system": list(body.get("systemInstruction", {}).get("parts", ())),
        "messages": _merged(messages),
        "tools": schemas,
    }


def _gemini_whole(message: Body) -> Body:
    text, calls = _blocks(message)
    parts: list[Body] = [
        *([{"text": text}] if text or not calls else []),
        *({"functionCall": {"name": call["name"], "args": call["input"]}} for call in calls),
    ]
    usage = message["usage"]
    read, wrote = usage["input_tokens"], usage["output_tokens"]
    return {
        "candidates": [{"index": 0, "content": {"role": "model", "parts": parts}, "finishReason": "STOP"}],
        "usageMetadata": {"promptTokenCount": read, "candidatesTokenCount": wrote, "totalTokenCount": read + wrote},
        "modelVersion": message["model"],
    }  # fmt: skip


def _gemini_spell(message: Body) -> tuple[Events, Events]:
    return _nothing(), iter([("", _gemini_whole(message))])


DIALECTS = (
    Dialect(re.compile(r"/v1/chat/completions"), _chat_read, _chat_whole, _chat_spell),
    Dialect(re.compile(r"/v1/responses"), _responses_read, _responses_whole, _responses_spell),
    Dialect(
        re.compile(r"/v1(?:beta)?/models/(?P<model>[^/:]+):(?P<how>(?:stream)?[gG]enerateContent)"),
        _gemini_read,
        _gemini_whole,
        _gemini_spell,
    ),
)


def translate(name: str, given: Mapping[str, Any], offered: Iterable[Body]) -> Body:
    """Convert a scripted call of ``Bash``, ``Write`` or ``mcp__SERVER__TOOL`` to the names that the
    agent offers.

    Arguments that the agent's schema requires beyond those given get a value of the right type. A
    tool that is not offered stays unchanged.
    """
    tools = {tool["name"]: tool for tool in offered}
    server, _, short = name.removeprefix("mcp__").partition("__")
    found = next((each for each in (name, *_SAME.get(name, ())) if each in tools), None)
    if found is None and name.startswith("mcp__"):
        found = next(
            (
                each
                for each, tool in tools.items()
                if each.endswith(short) and server in each + tool.get("namespace", "")
            ),
            None,
        )
    if (
        found is None and name == "Write" and "exec_command" in tools
    ):  # codex writes with its shell; a write needs more than its sandbox gives
        command = f"cat > {given['file_path']} <<'END'\n{given['content']}\nEND"
        escalated = {"sandbox_permissions": "require_escalated", "justification": "Scripted"}
        return translate("exec_command", {"cmd": command, **escalated}, tools.values())
    if found is None:
        return {"name": name, "input": dict(given)}
    properties = tools[found]["schema"].get("properties", {})
    input_ = {
        next((other for other in _NAMES.get(key, ()) if other in properties), key): value
        for key, value in given.items()
    }
    for key in tools[found]["schema"].get("required", ()):
        wanted = properties.get(key, {})
        kind = str(wanted.get("type", "")).lower()
        placeholder = wanted["enum"][0] if wanted.get("enum") else _PLACEHOLDERS.get(kind, "scripted")
        input_.setdefault(key, placeholder)
    namespace = tools[found].get("namespace", "")
    return {"name": found, "input": input_, **({"namespace": namespace} if namespace else {})}
