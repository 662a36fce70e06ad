"""The command line of Claude Code, which the SDK builds, and the variables that it needs besides
the person's."""

import json
from pathlib import Path
from typing import cast

import claude_agent_sdk
from claude_agent_sdk import ClaudeAgentOptions, McpSdkServerConfig
from claude_agent_sdk._internal.transport.subprocess_cli import SubprocessCLITransport
from claude_agent_sdk.types import EffortLevel, SystemPromptPreset
from ramet.mcp import SERVER

from rametd.agents.base import Launch, NativeStart, Start
from rametd.agents.claude import outside
from rametd.domain.models import Session

# The daemon owns worktrees, schedules and messages between sessions.
DISALLOWED_TOOLS = [
    "EnterWorktree",
    "ExitWorktree",
    "CronCreate",
    "CronDelete",
    "CronList",
    "ScheduleWakeup",
    "ListAgents",
    "SendMessage",
]

SETTINGS = {"cleanupPeriodDays": 3650}
"""Days; by default Claude Code deletes transcripts after thirty, and it cannot resume a
conversation without its transcript."""


def launch(path: Path, session: Session, start: Start) -> Launch:
    """Build arguments and environment for one process of the session's agent.

    The briefing is appended to Claude Code's system prompt. A resumed conversation has its first
    briefing until it is compacted.
    """
    resume, cut = session.conversation_begun, start.cut
    options = ClaudeAgentOptions(
        cli_path=path,
        cwd=session.worktree,
        system_prompt=system_prompt(start.briefing),
        model=session.model or None,
        effort=cast("EffortLevel | None", session.effort or None),
        permission_mode=session.mode.value,
        permission_prompt_tool_name="stdio",
        allowed_tools=[f"mcp__{SERVER}"],  # the caps are the permission
        disallowed_tools=DISALLOWED_TOOLS,
        mcp_servers={SERVER: cast("McpSdkServerConfig", {"type": "sdk", "name": SERVER})},
        settings=json.dumps(SETTINGS),
        setting_sources=None if start.trusted else ["user"],
        resume=session.conversation_id if resume else cut.source_id if cut is not None else None,
        fork_session=not resume and cut is not None,
        resume_session_at=(cut.message_id or None) if cut is not None and not resume else None,
        session_id=None if resume else session.conversation_id,
        include_partial_messages=True,
        extra_args={"replay-user-messages": None},
    )
    argv = SubprocessCLITransport(prompt="", options=options)._build_command()  # the SDK is pinned, a test compares
    variables = {
        **start.environment,
        "CLAUDE_CODE_ENTRYPOINT": outside.OURS,
        "CLAUDE_AGENT_SDK_VERSION": claude_agent_sdk.__version__,
        "CLAUDE_CODE_SDK_READS_SESSION_STATE": "1",
        "DISABLE_AUTOUPDATER": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        "PWD": str(session.worktree),
    }
    return Launch(tuple(argv), variables)


def native(path: Path, session: Session, start: NativeStart) -> Launch:
    """Build arguments and environment for Claude Code's own interface, in the session's mode and
    with Ramet's settings and rules."""
    argv = [str(path)]
    if session.conversation_begun:
        argv += ["--resume", session.conversation_id]
    elif start.cut is not None:
        argv += ["--resume", start.cut.source_id, "--fork-session", "--session-id", session.conversation_id]
    else:
        argv += ["--session-id", session.conversation_id]
    argv += ["--permission-mode", session.mode.value]
    if session.model:
        argv += ["--model", session.model]
    permissions = {effect: list(rules) for effect, rules in start.rules.items() if rules}
    permissions["allow"] = [*permissions.get("allow", ()), f"mcp__{SERVER}"]
    argv += ["--settings", json.dumps(SETTINGS | {"permissions": permissions})]
    if not start.trusted:
        argv += ["--setting-sources", "user"]
    argv += ["--disallowedTools", ",".join(DISALLOWED_TOOLS)]
    if start.briefing:
        argv += ["--append-system-prompt", start.briefing]
    if start.mcp_command:
        server = {"type": "stdio", "command": start.mcp_command[0], "args": list(start.mcp_command[1:])}
        argv += ["--mcp-config", json.dumps({"mcpServers": {SERVER: server}})]
    variables = {
        **start.environment,
        "CLAUDE_CODE_ENTRYPOINT": outside.ENTRYPOINT,
        "CLAUDE_CODE_SANDBOXED": "1",  # skips the question whether to trust the worktree, which Ramet created
        "DISABLE_AUTOUPDATER": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        "PWD": str(session.worktree),
    }
    return Launch(tuple(argv), variables)


def system_prompt(briefing: str) -> SystemPromptPreset:
    preset: SystemPromptPreset = {"type": "preset", "preset": "claude_code"}
    if briefing:
        preset["append"] = briefing
    return preset
