"""The SDK's transport to Claude Code."""

import gc
import json
import weakref
from typing import Any
from unittest.mock import MagicMock

from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient
from rametd.agents.claude.transport import KeeperTransport
from rametd.domain.models import Agent

from tests.support.eventually import eventually


class Message(dict[str, Any]):
    """A message that a weak reference can watch."""


class IO(MagicMock):
    """Answers `initialize` at once, and stores nothing."""

    transport: KeeperTransport

    async def initialized(self, hook_table: str) -> None:
        pass

    async def write(self, line: bytes) -> None:
        response = {"subtype": "success", "request_id": json.loads(line)["request_id"], "response": {"commands": []}}
        self.transport.feed({"type": "control_response", "response": response})


async def test_the_sdk_holds_no_message_that_it_has_handled() -> None:
    io = IO()
    agent = MagicMock(spec=Agent, initialize_reply=b"", hook_table="")
    transport = io.transport = KeeperTransport(agent, io)
    client = ClaudeSDKClient(ClaudeAgentOptions(), transport=transport)
    await client.connect()
    try:
        message = Message(type="control_response", response={"request_id": "of an earlier daemon", "response": {}})
        held = weakref.ref(message)
        transport.feed(message)
        del message

        def is_released() -> bool:
            gc.collect()
            return held() is None

        await eventually(is_released)
    finally:
        await client.disconnect()
