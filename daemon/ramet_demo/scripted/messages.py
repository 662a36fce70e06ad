"""Replies in the shapes of the Messages API, complete or as server-sent events."""

import json
import uuid
from collections.abc import Iterator
from typing import Any

from ramet_demo.scripted.script import Step

Events = Iterator[tuple[str, dict[str, Any]]]
"""Server-sent events: the event's type, "" where the API has none, and its data."""

USAGE = {"input_tokens": 1000, "output_tokens": 50, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
ERRORS = {
    400: ("invalid_request_error", "Scripted: invalid request"),
    401: ("authentication_error", "Scripted: invalid x-api-key"),
    403: ("permission_error", "Scripted: forbidden"),
    429: ("rate_limit_error", "Scripted: rate limited"),
    500: ("api_error", "Scripted: internal server error"),
    529: ("overloaded_error", "Scripted: overloaded"),
}
DELTA = 24  # characters in one delta


def error(status: int, words: str = "") -> dict[str, Any]:
    kind, text = ERRORS.get(status, ("api_error", f"Scripted: error {status}"))
    return {"type": "error", "error": {"type": kind, "message": words or text}}


def message(model: str, step: Step) -> dict[str, Any]:
    """Return the complete message of a step: thinking, then text, then one or several tool
    calls."""
    content: list[dict[str, Any]] = []
    if "thinking" in step:
        content.append({"type": "thinking", "thinking": step["thinking"], "signature": "c2NyaXB0ZWQ="})
    if "text" in step:
        content.append({"type": "text", "text": step["text"]})
    calls = [*([step] if "tool" in step else []), *step.get("tools", ())]
    content += [
        {
            "type": "tool_use",
            "id": f"toolu_{uuid.uuid4().hex[:24]}",
            "name": call["tool"],
            "input": call.get("input", {}),
        }
        for call in calls
    ]
    return {
        "id": f"msg_{uuid.uuid4().hex[:24]}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": content,
        "stop_reason": "tool_use" if calls else "end_turn",
        "stop_sequence": None,
        "usage": {**USAGE, **step.get("usage", {})},
    }


def events(whole: dict[str, Any]) -> Events:
    """Return a complete message as server-sent events (kind, data); ``message_stop`` is last."""
    usage = whole["usage"]
    start = {**whole, "content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 1}}
    yield "message_start", {"message": start}
    for index, block in enumerate(whole["content"]):
        empty, deltas = _spell(block)
        yield "content_block_start", {"index": index, "content_block": empty}
        for delta in deltas:
            yield "content_block_delta", {"index": index, "delta": delta}
        yield "content_block_stop", {"index": index}
    end = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    yield "message_delta", {"delta": end, "usage": usage}
    yield "message_stop", {}


def _spell(block: dict[str, Any]) -> tuple[dict[str, Any], Iterator[dict[str, Any]]]:
    if block["type"] == "text":
        return {**block, "text": ""}, ({"type": "text_delta", "text": part} for part in _parts(block["text"]))
    if block["type"] == "thinking":
        thinking = [{"type": "thinking_delta", "thinking": part} for part in _parts(block["thinking"])]
        signature = {"type": "signature_delta", "signature": block["signature"]}
        return {**block, "thinking": "", "signature": ""}, iter([*thinking, signature])
    arguments = json.dumps(block["input"])
    return {**block, "input": {}}, ({"type": "input_json_delta", "partial_json": part} for part in _parts(arguments))


def _parts(text: str) -> list[str]:
    return [text[at : at + DELTA] for at in range(0, len(text), DELTA)] or [""]
