"""The command line of the Claude Code CLI, as far as the scripted agent implements it; other flags
are accepted and ignored."""

# pathlib would cost each of hundreds of agents a megabyte.
# ruff: noqa: PTH123

import json
from typing import Any, NamedTuple

VERSION = "2.1.332"
DEFAULT_MODEL = "claude-opus-5-5"

_VALUED = frozenset(
    {
        "--add-dir", "--allowedTools", "--append-system-prompt", "--betas", "--disallowedTools", "--effort", "--fallback-model",
        "--input-format", "--json-schema", "--max-budget-usd", "--max-thinking-tokens", "--max-turns", "--mcp-config", "--model",
        "--output-format", "--permission-mode", "--permission-prompt-tool", "--plugin-dir", "--resume", "--resume-session-at", "--session-id", "--settings",
        "--setting-sources", "--system-prompt", "--system-prompt-file", "--task-budget", "--thinking", "--thinking-display", "--tools",
    }
)  # fmt: skip


class Flags(NamedTuple):
    version: bool
    resume: str
    session_id: str
    fork: bool
    until: str  # the uuid of the last message to resume from
    model: str
    mode: str
    replay: bool
    partial: bool  # send pieces of messages as they are written
    asks: bool  # permission requests go to the host; without that they are denied
    allowed: tuple[str, ...]
    disallowed: tuple[str, ...]
    sdk_servers: tuple[str, ...]  # in-process MCP servers of the host


def parse(argv: list[str]) -> Flags:
    given: dict[str, str] = {}
    rest = iter(argv)
    for word in rest:
        name, equals, value = word.partition("=")
        given[name] = value if equals else next(rest, "") if name in _VALUED else "true"
    return Flags(
        version="--version" in given or "-v" in given,
        resume=given.get("--resume", ""),
        session_id=given.get("--session-id", ""),
        fork="--fork-session" in given,
        until=given.get("--resume-session-at", ""),
        model=given.get("--model") or DEFAULT_MODEL,
        mode=given.get("--permission-mode", "default"),
        replay="--replay-user-messages" in given,
        partial="--include-partial-messages" in given,
        asks=given.get("--permission-prompt-tool") == "stdio",
        allowed=_list(given.get("--allowedTools", "")),
        disallowed=_list(given.get("--disallowedTools", "")),
        sdk_servers=_sdk_servers(given.get("--mcp-config", "")),
    )


def _list(value: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in value.split(",") if word.strip())


def _sdk_servers(value: str) -> tuple[str, ...]:
    """The in-process servers named in ``--mcp-config``, which is JSON or the path of a file."""
    if not value:
        return ()
    if not value.lstrip().startswith("{"):
        with open(value, encoding="utf-8") as file:
            value = file.read()
    servers: dict[str, Any] = json.loads(value)["mcpServers"]
    return tuple(name for name, server in servers.items() if server.get("type") == "sdk")
