"""How Claude Code is started: arguments as the SDK makes them, and the variables that it needs beside those of the person."""

import asyncio
import json
import os
from collections.abc import Mapping
from pathlib import Path

import claude_agent_sdk
from claude_agent_sdk import ClaudeAgentOptions
from claude_agent_sdk._internal.transport.subprocess_cli import SubprocessCLITransport

from rametd.agents.base import Launch
from rametd.domain.errors import AgentUnavailableError
from rametd.domain.models import Session

BUNDLED = Path(claude_agent_sdk.__file__).parent / "_bundled" / "claude"

# Worktrees, schedules and messages between sessions belong to the daemon.
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
"""Claude Code deletes transcripts after thirty days unless told otherwise; without its transcript a conversation cannot be resumed."""


def launch(path: Path, session: Session, *, resume: bool, trusted: bool, environment: Mapping[str, str]) -> Launch:
    """Build arguments and environment for one process of the session's agent.

    A repository's own settings, hooks and MCP servers load only when it is ``trusted``.
    """
    options = ClaudeAgentOptions(
        cli_path=path,
        cwd=session.worktree,
        system_prompt={"type": "preset", "preset": "claude_code"},
        model=session.model or None,
        permission_mode=session.mode.value,
        permission_prompt_tool_name="stdio",
        disallowed_tools=DISALLOWED_TOOLS,
        settings=json.dumps(SETTINGS),
        setting_sources=None if trusted else ["user"],
        resume=session.conversation_id if resume else None,
        session_id=None if resume else session.conversation_id,
        extra_args={"replay-user-messages": None},
    )
    argv = SubprocessCLITransport(prompt="", options=options)._build_command()  # the SDK is pinned, a test compares
    variables = {
        **environment,
        "CLAUDE_CODE_ENTRYPOINT": "sdk-py",
        "CLAUDE_AGENT_SDK_VERSION": claude_agent_sdk.__version__,
        "CLAUDE_CODE_SDK_READS_SESSION_STATE": "1",
        "DISABLE_AUTOUPDATER": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        "PWD": str(session.worktree),
    }
    return Launch(tuple(argv), variables)


async def check(path: Path) -> str:
    """Return what ``path --version`` says; `AgentUnavailableError` names what to set when it cannot be run."""
    hint = "set agents.claude.path in config.toml to a working claude, or install Ramet again to get its own"
    if not os.path.isfile(path):  # noqa: PTH113, ASYNC240 - one look at a local file
        raise AgentUnavailableError(f"there is no Claude Code at {path}", hint=hint)
    if not os.access(path, os.X_OK):
        raise AgentUnavailableError(f"{path} may not be executed", hint=hint)
    try:
        process = await asyncio.create_subprocess_exec(
            path,
            "--version",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            stdout, stderr = await asyncio.wait_for(process.communicate(), 20)
        except TimeoutError:
            process.kill()
            await process.wait()
            raise AgentUnavailableError(f"{path} --version did not answer within 20 seconds", hint=hint) from None
    except OSError as error:
        raise AgentUnavailableError(f"{path} cannot be run: {error.strerror}", hint=hint) from error
    if process.returncode != 0:
        words = stderr.decode("utf-8", "replace").strip().splitlines() or [f"it ended with {process.returncode}"]
        raise AgentUnavailableError(f"{path} does not work: {words[-1]}", hint=hint)
    return stdout.decode("utf-8", "replace").strip()
