"""The host's in-process MCP servers, reached through ``mcp_message`` control requests."""

from typing import Any

from ramet_demo.scripted.flags import VERSION
from ramet_demo.scripted.wire import Frame, Request, Wire

PROTOCOL = "2025-11-25"


class Server:
    """One server: `advance` continues its handshake, after which it can be called."""

    def __init__(self, name: str, wire: Wire) -> None:
        self.name = name
        self.tools: list[str] = []  # as the model knows them: ``mcp__<server>__<tool>``
        self.status = "pending"
        self._wire = wire
        self._count = 0
        client = {"name": "claude-code", "title": "Claude Code", "version": VERSION}
        self._asked = self._call("initialize", {"protocolVersion": PROTOCOL, "capabilities": {}, "clientInfo": client})
        self._listing = False

    def advance(self) -> None:
        """Process the answer to the current step of the handshake, if it has arrived."""
        if self.status != "pending" or self._asked.open:
            return
        result = self._result(self._asked)
        if "error" in result:
            self.status = "failed"
        elif self._listing:
            self.tools = [f"mcp__{self.name}__{tool['name']}" for tool in result["result"]["tools"]]
            self.status = "connected"
        else:
            notice = {"jsonrpc": "2.0", "method": "notifications/initialized"}
            self._wire.request(subtype="mcp_message", server_name=self.name, message=notice)
            self._asked = self._call("tools/list")
            self._listing = True

    def use(self, tool: str, arguments: Frame, tool_use_id: str) -> tuple[Any, bool]:
        """Call a tool; return its content and whether it is an error."""
        meta = {"claudecode/toolUseId": tool_use_id}
        request = self._call("tools/call", {"name": tool, "arguments": arguments, "_meta": meta})
        self._wire.await_answers([request])
        reply = self._result(request)
        if "error" in reply:
            return reply["error"]["message"], True
        return reply["result"]["content"], bool(reply["result"].get("isError"))

    def _call(self, method: str, params: Frame | None = None) -> Request:
        message: Frame = {
            "jsonrpc": "2.0",
            "id": self._count,
            "method": method,
            **({"params": params} if params else {}),
        }
        self._count += 1
        return self._wire.request(subtype="mcp_message", server_name=self.name, message=message)

    def _result(self, request: Request) -> Frame:
        answer = request.answer or {"subtype": "error", "error": "Stream closed"}
        if answer["subtype"] != "success":
            return {"error": {"message": answer.get("error", "failed")}}
        reply: Frame = answer["response"]["mcp_response"]
        return reply
