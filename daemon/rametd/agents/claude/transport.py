"""The SDK's transport to a Claude Code under a keeper. It transports only the control protocol;
closing it detaches.

The SDK calls its `Transport` internal, so the SDK is pinned and tests/e2e checks this class against
the real program. Besides transporting lines:

- The SDK gets a line only after it is stored (`feed`): a crash must not lose a question that the
daemon has answered.
- A running program has already had its `initialize`. If it registered the same hooks, the transport
  repeats the recorded answer and sends nothing. If the daemon's hooks have changed, it sends
  `initialize`, and the program drops the old hooks' calls.
"""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator
from typing import Any

from claude_agent_sdk import Transport

from rametd.agents.base import ChannelIO
from rametd.agents.claude.control import flags_of
from rametd.agents.values import table
from rametd.domain.models import Agent

NOTHING: dict[str, Any] = {"type": "control_response"}
"""Answers no request: the SDK ignores it. It holds a message until the next one arrives, and the
last message before a pause may be a call with a large file."""


class KeeperTransport(Transport):
    """One control channel; the SDK owns it from `connect` to `close`."""

    def __init__(self, agent: Agent, io: ChannelIO) -> None:
        self._agent = agent
        self._io = io
        self._lines: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self._open = True

    async def connect(self) -> None:
        """Do nothing: the keeper is attached already."""

    def feed(self, message: dict[str, Any]) -> None:
        """Pass a stored line to the SDK, which keeps the answer to `initialize`."""
        response = table(message, "response")
        if "commands" in (reply := table(response, "response")):
            message = {**message, "response": {**response, "response": flags_of(reply)}}
        self._lines.put_nowait(message)

    def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        return self._messages()

    async def _messages(self) -> AsyncIterator[dict[str, Any]]:
        while (message := await self._lines.get()) is not None:
            yield message
            del message
            yield NOTHING

    async def write(self, data: str) -> None:
        message = json.loads(data)
        line = data.encode()
        match message.get("type"):
            case "control_response":
                await self._io.answer(message["response"]["request_id"], line)
            case "control_request" if message["request"].get("subtype") == "initialize":
                await self._initialize(message, line)
            case _:
                await self._io.write(line)

    async def _initialize(self, message: dict[str, Any], line: bytes) -> None:
        hooks = json.dumps(message["request"].get("hooks"), sort_keys=True)
        digest = hashlib.sha256(hooks.encode()).hexdigest()[:16]
        if self._agent.initialize_reply and self._agent.hook_table == digest:
            response = {
                "subtype": "success",
                "request_id": message["request_id"],
                "response": json.loads(self._agent.initialize_reply),
            }
            self.feed({"type": "control_response", "response": response})
        else:
            await self._io.initialized(digest)
            await self._io.write(line)

    async def close(self) -> None:
        """Detach; the agent's standard input stays open."""
        self._open = False
        self._lines.put_nowait(None)

    def is_ready(self) -> bool:
        return self._open

    async def end_input(self) -> None:
        """Do nothing: an agent exits when its input ends."""
