"""Lines of Claude Code's control protocol: requests, responses, cancellations."""

import json
from collections.abc import Mapping
from typing import Any

from ramet.v1 import event_pb2

from rametd.agents.base import ControlAsked, ControlCancelled, ControlSettled, Fact, Initialized, Question
from rametd.agents.values import Message, rows, table, text
from rametd.domain.models import RequestKind

TOOL_KINDS = {"AskUserQuestion": RequestKind.QUESTION, "ExitPlanMode": RequestKind.PLAN}


def read_control_request(message: Message, event: event_pb2.Event) -> tuple[Fact, ...]:
    request = table(message, "request")
    line = event.control_line
    line.type, line.subtype, line.request_id = "control_request", text(request, "subtype"), text(message, "request_id")
    question = None
    if line.subtype == "can_use_tool":
        tool = text(request, "tool_name")
        question = Question(
            kind=TOOL_KINDS.get(tool, RequestKind.PERMISSION),
            tool=tool,
            tool_use_id=text(request, "tool_use_id"),
            input=json.dumps(table(request, "input"), ensure_ascii=False),
            reason=text(request, "decision_reason") or text(request, "title") or text(request, "description"),
            suggestions=json.dumps(rows(request, "permission_suggestions")),
        )
    elif line.subtype == "elicitation":
        question = Question(
            kind=RequestKind.ELICITATION,
            tool=text(request, "mcp_server_name"),
            tool_use_id="",
            input=json.dumps({key: value for key, value in request.items() if key != "subtype"}, ensure_ascii=False),
            reason=text(request, "message"),
            suggestions="[]",
        )
    return (ControlAsked(line.request_id, line.subtype, question),)


def read_control_response(message: Message, event: event_pb2.Event) -> tuple[Fact, ...]:
    response = table(message, "response")
    line = event.control_line
    line.type, line.subtype, line.request_id = (
        "control_response",
        text(response, "subtype"),
        text(response, "request_id"),
    )
    payload = table(response, "response")
    if "commands" in payload:  # only the answer to `initialize` lists them
        return (Initialized(json.dumps(flags_of(payload)).encode()),)
    return (ControlSettled(line.request_id),)


def flags_of(reply: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of an answer to `initialize` that the SDK reads.

    The daemon holds it as long as the agent lives; the dropped lists (commands, agents, models) are
    nearly all of its size.
    """
    return {name: value for name, value in reply.items() if not isinstance(value, list | dict)}


def read_control_cancel(message: Message, event: event_pb2.Event) -> tuple[Fact, ...]:
    line = event.control_line
    line.type, line.request_id = "control_cancel_request", text(message, "request_id")
    return (ControlCancelled(line.request_id),)
