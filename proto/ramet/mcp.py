"""The tools for agents as an MCP server, built from the descriptors of OrchestrationService.

Stateless on purpose: a daemon need not have seen the handshake to answer a call, so a restarted
daemon can answer a call that began before a kill. Source: the Model Context Protocol, revision
2025-11-25, of which a server with only tools needs five methods.
"""

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from typing import Any

from google.protobuf.descriptor import FieldDescriptor, MethodDescriptor
from google.protobuf.json_format import ParseDict, ParseError
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from ramet.jsonify import to_json
from ramet.v1 import orchestration_pb2, tool_pb2

SERVER = "ramet"
RELEASE = version("ramet")
PROTOCOL = "2025-11-25"
SERVICE = orchestration_pb2.DESCRIPTOR.services_by_name["OrchestrationService"]

METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602

JSON_TYPES = {
    FieldDescriptor.TYPE_STRING: "string",
    FieldDescriptor.TYPE_BOOL: "boolean",
    FieldDescriptor.TYPE_DOUBLE: "number",
    FieldDescriptor.TYPE_UINT32: "integer",
}

Object = dict[str, Any]
Caller = Callable[[str, Message, str], Awaitable[Message]]
"""Makes a call: its name, the request, and a key that is the same when the same call is answered
again."""


class ToolRefused(Exception):  # noqa: N818 - an answer, not a fault
    """The call was refused; the message is for the model."""


@dataclass(frozen=True, slots=True)
class Tool:
    name: str
    description: str
    method: str
    schema: Object
    request: type[Message]


@cache
def tools() -> dict[str, Tool]:
    """All tools, by name."""
    return {tool.name: tool for tool in map(_tool, SERVICE.methods)}


def _tool(method: MethodDescriptor) -> Tool:
    option = method.GetOptions().Extensions[tool_pb2.tool]
    fields = [field for field in method.input_type.fields if field.GetOptions().HasExtension(tool_pb2.argument)]
    schema: Object = {
        "type": "object",
        "properties": {field.name: _schema(field) for field in fields},
        "required": [field.name for field in fields if field.GetOptions().Extensions[tool_pb2.argument].required],
        "additionalProperties": False,
    }
    return Tool(option.name, option.description, method.name, schema, GetMessageClass(method.input_type))


def _schema(field: FieldDescriptor) -> Object:
    argument = field.GetOptions().Extensions[tool_pb2.argument]
    value: Object = {"type": JSON_TYPES[field.type]}
    if argument.choices:
        value["enum"] = list(argument.choices)
    if field.is_repeated:
        value = {"type": "array", "items": value}
    return {**value, "description": argument.description}


class ToolServer:
    """Answers JSON-RPC messages of one MCP client. ``call`` reaches OrchestrationService; the model
    gets the message of a `ToolRefused` that it raises."""

    def __init__(self, call: Caller) -> None:
        self._call = call

    async def answer(self, message: Object, key: str) -> Object | None:
        """The answer to one message, None where it wants none. ``key`` makes a call that is asked
        again the same call."""
        if "id" not in message:
            return None
        parameters = message.get("params") or {}
        match message.get("method"):
            case "initialize":
                result: Object = {
                    "protocolVersion": parameters.get("protocolVersion", PROTOCOL),
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": SERVER, "version": RELEASE},
                }
            case "ping":
                result = {}
            case "tools/list":
                result = {
                    "tools": [
                        {"name": tool.name, "description": tool.description, "inputSchema": tool.schema}
                        for tool in tools().values()
                    ]
                }
            case "tools/call":
                tool = tools().get(str(parameters.get("name")))
                if tool is None:
                    return _error(message, INVALID_PARAMS, f"there is no tool {parameters.get('name')!r}")
                result = await self._use(tool, parameters.get("arguments") or {}, key)
            case other:
                return _error(message, METHOD_NOT_FOUND, f"there is no method {other!r}")
        return {"jsonrpc": "2.0", "id": message["id"], "result": result}

    async def _use(self, tool: Tool, arguments: Any, key: str) -> Object:
        try:
            if not isinstance(arguments, dict):
                raise ToolRefused(f"the arguments of {tool.name} are an object")
            unknown = sorted(set(arguments) - set(tool.schema["properties"]))
            missing = [name for name in tool.schema["required"] if not arguments.get(name)]
            if unknown or missing:
                wanted = ", ".join(tool.schema["properties"])
                raise ToolRefused(f"unknown: {unknown}, missing: {missing}; {tool.name} takes {wanted}")
            request = ParseDict(arguments, tool.request())
            if "request_id" in tool.request.DESCRIPTOR.fields_by_name:
                request.request_id = key  # type: ignore[attr-defined]
            response = await self._call(tool.method, request, key)
        except (ToolRefused, ParseError) as error:
            return {"content": [{"type": "text", "text": str(error)}], "isError": True}
        return {
            "content": [{"type": "text", "text": json.dumps(to_json(response), ensure_ascii=False)}],
            "isError": False,
        }


def _error(message: Object, code: int, text: str) -> Object:
    return {"jsonrpc": "2.0", "id": message["id"], "error": {"code": code, "message": text}}
