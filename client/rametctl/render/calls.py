"""Describe tool calls and their results."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ramet.v1.event_pb2 import ToolCall, ToolResult
from ramet.visible import visible
from ramet.words import plural

from rametctl.render.format import parsed

ESSENTIAL = (
    "command",
    "file_path",
    "notebook_path",
    "path",
    "pattern",
    "url",
    "query",
    "skill",
    "description",
    "prompt",
)
"""Arguments that describe a call, the most telling first."""
COUNTED = {"Read": "line", "Grep": "line", "Glob": "file", "LS": "entry", "WebFetch": "line", "WebSearch": "line"}
"""Tools whose result is only counted, with the unit."""
OWN = "mcp__ramet__"  # f"mcp__{ramet.mcp.SERVER}__": the module takes 0.1 s to import
CONTROL_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\))")
WRAPPER = re.compile(r"</?tool_use_error>")


def call_summary(call: "ToolCall") -> str:
    """Return the essential argument of a call, on one line."""
    data = parsed(call.input_json)
    if isinstance(data, Mapping):
        for key in ESSENTIAL:
            if isinstance(data.get(key), str):
                return " ".join(visible(data[key]).split())
        text = json.dumps(data, ensure_ascii=False) if data else ""
        return " ".join(visible(text).split())
    return " ".join(visible(call.input_json).split())


def relative(text: str, worktree: str) -> str:
    """Return ``text`` with paths below ``worktree`` made relative to it."""
    if not worktree or worktree not in text:
        return text
    return text.replace(worktree.rstrip("/") + "/", "") if text != worktree else "."


def words(call: "ToolCall", result: "ToolResult | None", worktree: str) -> tuple[str, str]:
    """Describe a call: a verb and its object. The verb is the tool's name, or "" if the object says
    it all."""
    data = parsed(call.input_json)
    arguments: Mapping[str, Any] = data if isinstance(data, Mapping) else {}
    if call.tool.startswith(OWN):
        tool = call.tool.removeprefix(OWN)
        answer = parsed(result.text) if result is not None and not result.is_error else None
        say = OWN_TOOLS.get(tool)
        if say is not None:
            return "", say(arguments, answer if isinstance(answer, Mapping) else {})
    if call.tool.startswith("mcp__"):
        _, server, tool = ([*call.tool.split("__", 2), ""])[:3]
        shown = ", ".join(f"{key}={_value(value)}" for key, value in arguments.items())
        return f"{server} · {tool}", f"({shown})"
    match call.tool:
        case "Grep" | "Glob":
            place = arguments.get("path")
            where = f" in {relative(place, worktree)}" if isinstance(place, str) else ""
            return call.tool, f"{_text(arguments, 'pattern')}{where}"
        case "Task" | "Agent":
            kind = _text(arguments, "subagent_type")
            return call.tool, _text(arguments, "description") + (f" ({kind})" if kind else "")
        case "TodoWrite":
            items = [item for item in arguments.get("todos") or () if isinstance(item, Mapping)]
            done = sum(item.get("status") == "completed" for item in items)
            return "Todos", f"{done} of {len(items)} done"
        case "Bash":
            return call.tool, _text(arguments, "command") or call_summary(call)
        case _:
            return call.tool, relative(call_summary(call), worktree)


def todos(call: "ToolCall") -> list[tuple[str, str]]:
    """Return (state, text) of each item of a to-do list."""
    data = parsed(call.input_json)
    items = data.get("todos") if isinstance(data, Mapping) and call.tool == "TodoWrite" else None
    return [
        (str(item.get("status")), str(item.get("content", "")))
        for item in (items if isinstance(items, list) else ())
        if isinstance(item, Mapping)
    ]


def result_texts(text: str, worktree: str) -> list[str]:
    """Return the lines of a tool's answer as a terminal would show them: without colours, with the
    last state of a progress bar."""
    text = WRAPPER.sub("", CONTROL_SEQUENCE.sub("", text)).replace("\r\n", "\n").strip("\n")
    lines = [part.rstrip("\r").rpartition("\r")[2].rstrip() for part in relative(text, worktree).split("\n")]
    return [] if lines == [""] else lines


def counted(call: "ToolCall", result: "ToolResult") -> str:
    """Return how much a tool has read if its result is only counted; else ""."""
    unit = COUNTED.get(call.tool)
    if unit is None or result.is_error:
        return ""
    count = sum(1 for part in result.text.rstrip("\n").split("\n") if part.strip())
    if call.tool in {"Grep", "Glob"} and result.text.startswith(("No files found", "No matches found")):
        count = 0
    return plural(count, unit) + (" and more" if result.truncated else "")


def _text(arguments: Mapping[str, Any], key: str) -> str:
    value = arguments.get(key)
    return value if isinstance(value, str) else ""


def _value(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _several(names: Any, what: str) -> str:
    """Return the names if there are few, else their number."""
    listed = [str(name) for name in names] if isinstance(names, Sequence) and not isinstance(names, str) else []
    return ", ".join(listed) if len(listed) <= 3 else plural(len(listed), what)


def _spawn(given: Mapping[str, Any], answer: Mapping[str, Any]) -> str:
    member = answer.get("session")
    if not isinstance(member, Mapping):
        return f"spawn {_text(given, 'name') or 'a session'}"
    branch = _text(member, "branch")
    return f"spawned {_text(member, 'name')}" + (f" ({branch})" if branch else "")


def _wait(given: Mapping[str, Any], answer: Mapping[str, Any]) -> str:
    members = answer.get("sessions")
    listed = given.get("sessions") or [
        _text(each, "name") for each in (members if isinstance(members, list) else ()) if isinstance(each, Mapping)
    ]
    whom = plural(len(listed), "session") if listed else "its sessions"
    ended = "" if not answer else ": done" if answer.get("done") else ": not yet"
    return f"waits for {'one of ' if given.get('any') else ''}{whom}{ended}"


def _own(given: Mapping[str, Any], answer: Mapping[str, Any]) -> str:
    paths = _several(given.get("paths"), "path")
    if given.get("refuse"):
        return f"refuses to hand over paths: {_text(given, 'reason')}"
    if session := _text(given, "session"):
        return f"hands {paths} over to {session}"
    return f"hands over {paths}" if paths else "hands over the paths that were asked for"


def _count(answer: Mapping[str, Any], key: str, unit: str) -> str:
    found = answer.get(key)
    return f" · {plural(len(found), unit)}" if isinstance(found, list) else ""


OWN_TOOLS: dict[str, Callable[[Mapping[str, Any], Mapping[str, Any]], str]] = {
    "spawn_session": _spawn,
    "list_sessions": lambda given, answer: "lists its sessions" + _count(answer, "sessions", "session"),
    "get_session": lambda given, answer: f"looks at {_text(given, 'session') or 'itself'}",
    "get_diff": lambda given, answer: f"reads the diff of {_text(given, 'session')}" + _count(answer, "files", "file"),
    "get_transcript": lambda given, answer: f"reads the transcript of {_text(given, 'session')}",
    "send_message": lambda given, answer: f"tells {_text(given, 'session')}: {_text(given, 'text')}",
    "read_messages": lambda given, answer: "reads its messages" + _count(answer, "messages", "message"),
    "wait_for_sessions": _wait,
    "stop_session": lambda given, answer: f"stops {_text(given, 'session')}",
    "request_path": lambda given, answer: f"asks for {_several(given.get('paths'), 'path')}: {_text(given, 'reason')}",
    "own": _own,
    "report_result": lambda given, answer: f"reports: {_text(given, 'text')}",
}
"""Describe calls of Ramet's tools, by name; each takes the arguments and the answer (empty while
the call runs)."""
