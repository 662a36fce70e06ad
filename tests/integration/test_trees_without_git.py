"""A worktree inside another repository that has lost its .git file: no command in it works in the
outer repository."""

from pathlib import Path

import grpc
import pytest
from ramet.v1 import common_pb2, terminal_pb2

from tests.support.agents import script
from tests.support.daemon import IDLE, Sandbox, connected, daemon_here, git, reason_of

pytestmark = pytest.mark.full

BYPASS = common_pb2.PERMISSION_MODE_BYPASS_PERMISSIONS


async def test_prompts_and_commands_are_refused_and_git_does_not_climb(sandbox: Sandbox) -> None:
    repository = sandbox.repository()
    config = sandbox.directories.config_file.read_text()
    sandbox.configure(f'[permissions]\nallow_bypass = true\n[worktrees]\nroot = "{repository / "trees"}"\n{config}')
    commit = {"tool": "Bash", "input": {"command": "rm .git; git add -A; git commit -qm climbed", "description": "x"}}
    tip = git(repository, "rev-parse", "main")
    async with daemon_here(sandbox), connected(sandbox) as client:
        session = await client.create(repository, script(commit, {"text": "x"}), name="bare", mode=BYPASS)
        await client.reach("bare", IDLE)
        assert not (Path(session.worktree) / ".git").exists()

        request = terminal_pb2.StartCommandRequest(session="bare", argv=["git", "status"])
        with pytest.raises(grpc.aio.AioRpcError) as prompt:
            await client.send("bare", "hello")
        with pytest.raises(grpc.aio.AioRpcError) as command:
            await client.terminals.StartCommand(request, metadata=client.metadata)

        assert {reason_of(prompt.value), reason_of(command.value)} == {"WORKTREE_CHANGED"}
        assert git(repository, "rev-parse", "main") == tip
        assert git(repository, "diff", "--cached", "--name-only") == ""
