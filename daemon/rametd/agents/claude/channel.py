"""The control protocol of one running Claude Code, spoken by the SDK."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any, cast

from claude_agent_sdk import (
    ClaudeAgentOptions,
    ClaudeSDKClient,
    HookContext,
    HookMatcher,
    PermissionResultAllow,
    PermissionResultDeny,
    ToolPermissionContext,
)
from claude_agent_sdk.types import (
    HookInput,
    HookJSONOutput,
    PermissionMode,
    PermissionUpdate,
    PreToolUseHookInput,
)

from rametd.agents.base import ChannelIO
from rametd.agents.claude.transport import KeeperTransport
from rametd.domain.models import Agent, ControlRequest, Mode

HOOK_TIMEOUT_S = 86_400
"""A hook outlives any outage of the daemon; without this the program gives up after ten minutes."""


REFUSAL = "This session has a worktree of its own already. Work in it, and let subagents work in it too."


async def refuse_isolation(hook_input: HookInput, tool_use_id: str | None, context: HookContext) -> HookJSONOutput:
    """Refuse a subagent in a worktree of its own, and tell the model why."""
    call = cast("PreToolUseHookInput", hook_input)["tool_input"]
    if call.get("isolation") != "worktree":
        return {}
    return {
        "hookSpecificOutput": {
            "hookEventName": "PreToolUse",
            "permissionDecision": "deny",
            "permissionDecisionReason": REFUSAL,
        }
    }


async def refuse_worktree(hook_input: HookInput, tool_use_id: str | None, context: HookContext) -> HookJSONOutput:
    """Refuse a worktree that is asked for in any other way, as by the definition of a subagent: the daemon would not know of it.

    The program keeps these words from the model; that is why `refuse_isolation` comes first.
    """
    raise PermissionError(REFUSAL)


class ClaudeChannel:
    """One SDK client. It lives in a task of its own, as the SDK wants connect and disconnect in the same one."""

    def __init__(self, agent: Agent, handshake: Sequence[ControlRequest], io: ChannelIO) -> None:
        self._io = io
        self._transport = KeeperTransport(agent, handshake, io)
        # The table of hooks is small and never changes its order: ids are given by order, and a running agent knows the old ones.
        # The SDK passes every event on, though its type lists only ten of them.
        worktree_create = cast("Any", "WorktreeCreate")
        hooks = {
            worktree_create: [HookMatcher(hooks=[refuse_worktree], timeout=HOOK_TIMEOUT_S, on_failure="block")],
            "PreToolUse": [HookMatcher("Agent|Task", hooks=[refuse_isolation], timeout=HOOK_TIMEOUT_S)],
        }
        options = ClaudeAgentOptions(can_use_tool=self._can_use_tool, hooks=hooks)
        self._client = ClaudeSDKClient(options, transport=self._transport)
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._closing = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._live(), name="claude-channel")
        await asyncio.shield(self._ready)

    async def _live(self) -> None:
        try:
            await self._client.connect()
            self._ready.set_result(None)
            await self._closing.wait()
        except BaseException as error:
            if not self._ready.done():
                self._ready.set_exception(error)
                self._ready.exception()  # seen: whoever waits gets it too
            raise
        finally:
            await self._client.disconnect()

    def feed(self, message: dict[str, Any]) -> None:
        self._transport.feed(message)

    async def interrupt(self) -> None:
        await self._client.interrupt()

    async def set_mode(self, mode: Mode) -> None:
        await self._client.set_permission_mode(mode.value)

    async def set_model(self, model: str) -> None:
        await self._client.set_model(model or None)

    async def close(self) -> None:
        self._closing.set()
        if self._task is None:
            return
        if not self._ready.done():
            self._task.cancel()
        await asyncio.wait([self._task])

    async def _can_use_tool(
        self, tool: str, tool_input: dict[str, Any], context: ToolPermissionContext
    ) -> PermissionResultAllow | PermissionResultDeny:
        decision = await self._io.decide(context.tool_use_id or "")
        if not decision.allow:
            return PermissionResultDeny(message=decision.message)
        updates = [PermissionUpdate.from_dict(update) for update in json.loads(decision.remember or "[]")]
        if decision.mode:
            updates.append(
                PermissionUpdate(type="setMode", mode=cast("PermissionMode", decision.mode), destination="session")
            )
        return PermissionResultAllow(
            updated_input=json.loads(decision.updated_input) if decision.updated_input else None,
            updated_permissions=updates or None,
        )
