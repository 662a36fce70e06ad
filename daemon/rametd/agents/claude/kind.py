"""Claude Code as a kind of agent."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rametd.agents.base import Channel, ChannelIO, Frame, Launch
from rametd.agents.claude import command
from rametd.agents.claude.channel import ClaudeChannel
from rametd.agents.claude.frames import read_frame
from rametd.domain.models import OWNER, Agent, ControlRequest, Prompt, Session

UNKNOWN_CONVERSATION = re.compile(r"No conversation found", re.IGNORECASE)
CONVERSATION_IN_USE = re.compile(r"Session ID .* is already in use", re.IGNORECASE)


class Claude:
    """Claude Code, by default the one that the pinned SDK brings."""

    name = "claude"

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or command.BUNDLED

    async def check(self) -> str:
        return await command.check(self.path)

    def launch(self, session: Session, *, resume: bool, trusted: bool, environment: Mapping[str, str]) -> Launch:
        return command.launch(self.path, session, resume=resume, trusted=trusted, environment=environment)

    def read(self, agent: Agent, start: int, end: int, line: bytes) -> Frame:
        return read_frame(agent.session_id, agent.generation, start, end, line)

    def prompt_line(self, prompt: Prompt) -> bytes:
        message: dict[str, Any] = {
            "type": "user",
            "uuid": prompt.id,
            "session_id": "default",
            "parent_tool_use_id": None,
            "message": {"role": "user", "content": prompt.text},
        }
        if prompt.source != OWNER:
            message["client_composed"] = True  # no slash commands and no @files in what a person did not write
        return json.dumps(message, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n"

    def channel(self, agent: Agent, handshake: Sequence[ControlRequest], io: ChannelIO) -> Channel:
        return ClaudeChannel(agent, handshake, io)

    def exit_reason(self, stderr_tail: str) -> str:
        lines = [line.strip() for line in stderr_tail.splitlines() if line.strip()]
        return lines[-1][:300] if lines else ""

    def conversation_missing(self, stderr_tail: str) -> bool:
        return UNKNOWN_CONVERSATION.search(stderr_tail) is not None

    def conversation_exists(self, stderr_tail: str) -> bool:
        return CONVERSATION_IN_USE.search(stderr_tail) is not None
