"""The command lines of Claude Code: of the daemon's process, and of its own interface."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from rametd.agents.base import NativeStart, Start
from rametd.agents.claude import command
from rametd.domain.checkpoints import ConversationCut
from rametd.domain.models import Mode

from tests.support.rows import a_session

ID = "0d3c2f6e-4b0f-4c8e-9d55-5b2f0a7c1e11"


def native(**fields: Any) -> NativeStart:
    return NativeStart(**{"trusted": True, "environment": {"A": "b"}, "rules": {}, "mcp_command": (), **fields})


def test_the_command_line_of_the_cli_is_the_one_that_was_tested() -> None:
    session = a_session(worktree=Path("/trees/s"), model="claude-opus-5", mode=Mode.ACCEPT_EDITS, conversation_id=ID)
    new = command.launch(Path("/opt/claude"), session, Start(trusted=False, environment={"PATH": "/bin"}))
    begun = replace(session, conversation_begun=True)
    resumed = command.launch(Path("/opt/claude"), begun, Start(trusted=True, environment={}))

    assert new.argv == (
        "/opt/claude", "--output-format", "stream-json", "--verbose",
        "--allowedTools", "mcp__ramet", "--disallowedTools",
        "EnterWorktree,ExitWorktree,CronCreate,CronDelete,CronList,ScheduleWakeup,ListAgents,SendMessage",
        "--model", "claude-opus-5", "--permission-prompt-tool", "stdio", "--permission-mode", "acceptEdits",
        "--session-id=0d3c2f6e-4b0f-4c8e-9d55-5b2f0a7c1e11", "--settings", '{"cleanupPeriodDays": 3650}',
        "--mcp-config", '{"mcpServers": {"ramet": {"type": "sdk", "name": "ramet"}}}',
        "--include-partial-messages", "--setting-sources=user", "--replay-user-messages", "--input-format", "stream-json",
    )  # fmt: skip
    assert set(resumed.argv) ^ set(new.argv) == {
        "--session-id=0d3c2f6e-4b0f-4c8e-9d55-5b2f0a7c1e11",
        "--resume=0d3c2f6e-4b0f-4c8e-9d55-5b2f0a7c1e11",
        "--setting-sources=user",
    }
    assert new.environment["PWD"] == "/trees/s"


def test_the_interface_gets_what_the_session_has() -> None:
    rules = {"allow": ("Bash(ls:*)",), "ask": (), "deny": ("Edit(secret/**)",)}
    start = native(briefing="told", rules=rules, mcp_command=("python", "-m", "tools"))

    def argv(start: NativeStart, **fields: Any) -> list[str]:
        return list(command.native(Path("/bin/claude"), a_session(conversation_id=ID, **fields), start).argv)

    begun = argv(start, conversation_begun=True, model="opus")
    assert begun[:5] == ["/bin/claude", "--resume", ID, "--permission-mode", "default"]
    settings = json.loads(begun[begun.index("--settings") + 1])
    assert settings["permissions"] == {"allow": ["Bash(ls:*)", "mcp__ramet"], "deny": ["Edit(secret/**)"]}
    servers = json.loads(begun[begun.index("--mcp-config") + 1])["mcpServers"]
    assert servers["ramet"]["command"] == "python"
    assert "--setting-sources" not in begun
    fresh = argv(native(trusted=False))
    assert fresh[1:3] == ["--session-id", ID], "it has written no transcript yet"
    assert fresh[fresh.index("--setting-sources") + 1] == "user"
    cut = ConversationCut("one", "other", "message")
    assert argv(native(cut=cut))[1:6] == [
        "--resume",
        "other",
        "--fork-session",
        "--session-id",
        ID,
    ]
