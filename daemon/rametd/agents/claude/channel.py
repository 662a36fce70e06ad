"""The control protocol of one running Claude Code. The SDK speaks most of it.

This module answers elicitations, which the SDK refuses, and calls of the daemon's own tools: a
reattached SDK would need the state of a tool server, and this one has none.
"""

import asyncio
import json
import re
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager
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
    PostToolUseFailureHookInput,
    PostToolUseHookInput,
    PreToolUseHookInput,
)
from ramet.mcp import SERVER

from rametd.agents.base import ChannelIO, ToolUse
from rametd.agents.claude.transport import KeeperTransport
from rametd.domain.errors import AgentRefusedError
from rametd.domain.models import Agent, Mode

HOOK_TIMEOUT_S = 86_400
"""Time limit of a hook in seconds. A hook must survive an outage of the daemon; the program's
default is ten minutes."""

UNNAMED_WRITES = "Bash|mcp__.*"
"""Tools that may write files that they do not name. They include the daemon's own: a matcher cannot
have exceptions."""

REFUSAL = "This session already has a worktree of its own. Work in it, and let subagents work in it too."
COST = re.compile(r"Estimated cost:\s*\$([0-9][0-9,]*\.?[0-9]*)")


async def refuse_worktree(hook_input: HookInput, tool_use_id: str | None, context: HookContext) -> HookJSONOutput:
    """Refuse a worktree that is requested without a call, such as by the definition of a subagent.

    The program does not show these words to the model; therefore the guard refuses calls first.
    """
    raise PermissionError(REFUSAL)


def verdict(decision: str, reason: str) -> HookJSONOutput:
    return {
        "hookSpecificOutput": {
            "hookEventName": "PreToolUse",
            "permissionDecision": cast("Any", decision),
            "permissionDecisionReason": reason,
        }
    }


class ClaudeChannel:
    """One SDK client. It has a task of its own: the SDK requires connect and disconnect in the same
    task."""

    def __init__(self, agent: Agent, io: ChannelIO) -> None:
        self._io = io
        self._transport = KeeperTransport(agent, io)
        self._questions: dict[str, str] = {}  # tool use → control request
        self._answering: dict[str, asyncio.Task[None]] = {}  # by control request that the SDK does not see
        # The order of hooks must not change: the SDK numbers them, and a running agent knows the
        # old numbers. The SDK passes on every event, though its type lists only ten.
        worktree_create = cast("Any", "WorktreeCreate")
        hooks = {
            worktree_create: [HookMatcher(hooks=[refuse_worktree], timeout=HOOK_TIMEOUT_S, on_failure="block")],
            "PreToolUse": [HookMatcher(hooks=[self._guard], timeout=HOOK_TIMEOUT_S, on_failure="block")],
            "PostToolUse": [HookMatcher(matcher=UNNAMED_WRITES, hooks=[self._look], timeout=HOOK_TIMEOUT_S)],
            "PostToolUseFailure": [HookMatcher(matcher=UNNAMED_WRITES, hooks=[self._look], timeout=HOOK_TIMEOUT_S)],
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
        except BaseException as error:  # a cancellation too, else the caller of `open` would wait forever
            if not self._ready.done():
                self._ready.set_exception(error)
                self._ready.exception()  # marks it as retrieved; waiters get it too
            raise
        finally:
            await self._client.disconnect()

    def feed(self, message: dict[str, Any]) -> None:
        request = message.get("request") or {}
        control_id = str(message.get("request_id"))
        match message.get("type"), request.get("subtype"):
            case "control_request", "mcp_message" if request.get("server_name") == SERVER:
                self._answer(control_id, self._use_tools(control_id, request.get("message") or {}))
                return
            case "control_request", "elicitation":
                self._answer(control_id, self._elicit(control_id))
                return
            case "control_request", "can_use_tool":
                self._questions[str(request.get("tool_use_id"))] = control_id
            case "control_cancel_request", _ if (task := self._answering.get(control_id)) is not None:
                task.cancel()
                return
        self._transport.feed(message)

    def _answer(self, control_id: str, work: Coroutine[Any, Any, dict[str, Any]]) -> None:
        async def answer() -> None:
            response = {"subtype": "success", "request_id": control_id, "response": await work}
            line = json.dumps({"type": "control_response", "response": response}, ensure_ascii=False).encode() + b"\n"
            await self._io.answer(control_id, line)

        task = asyncio.create_task(answer(), name=f"answer-{control_id}")
        self._answering[control_id] = task
        task.add_done_callback(lambda done: self._answered(control_id, done))

    def _answered(self, control_id: str, task: "asyncio.Task[None]") -> None:
        self._answering.pop(control_id, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._io.failed(error)

    async def _use_tools(self, control_id: str, message: dict[str, Any]) -> dict[str, Any]:
        answer = await self._io.use_tools(control_id, message)
        return {"mcp_response": answer if answer is not None else {"jsonrpc": "2.0", "result": {}}}

    async def _elicit(self, control_id: str) -> dict[str, Any]:
        decision = await self._io.decide(control_id)
        if not decision.allow:
            return {"action": "decline"}
        return {"action": "accept", "content": json.loads(decision.updated_input or "{}")}

    async def interrupt(self) -> None:
        query = self._client._query
        assert query is not None, "it is open"
        with _asking("end its turn"):  # the SDK's own request leaves queued prompts, which then begin a turn each
            await query._send_control_request({"subtype": "interrupt", "cancel_queued": True})

    async def set_mode(self, mode: Mode) -> None:
        with _asking(f"take the mode {mode}"):
            await self._client.set_permission_mode(mode.value)

    async def set_model(self, model: str) -> None:
        with _asking(f"take the model {model or 'that it has by itself'}"):
            await self._client.set_model(model or None)

    async def set_variables(self, variables: Mapping[str, str]) -> None:
        query = self._client._query
        assert query is not None, "it is open"
        settings = {"env": dict(variables)}
        with _asking("take settings"):
            await query._send_control_request({"subtype": "apply_flag_settings", "settings": settings})

    async def cost(self) -> float | None:
        """Return the cost that the process reports so far, in dollars, including the running turn;
        None if it reports none.

        The program reports it as text. For a release with another text, only results have a cost.
        """
        query = self._client._query
        if query is None:
            return None
        try:
            answer = await query._send_control_request({"subtype": "get_session_cost"})
        except Exception:  # noqa: BLE001 - the SDK raises nothing narrower for a refusal, which a release without the request gives
            return None
        found = COST.search(str(answer.get("text", "")))
        return float(found[1].replace(",", "")) if found else None

    async def close(self) -> None:
        self._closing.set()
        for task in list(self._answering.values()):
            task.cancel()
        if self._answering:
            await asyncio.wait(list(self._answering.values()))
        if self._task is None:
            return
        if not self._ready.done():
            self._task.cancel()
        await asyncio.wait([self._task])
        if not self._task.cancelled():
            self._task.exception()  # `open` raised it

    async def _guard(self, hook_input: HookInput, tool_use_id: str | None, context: HookContext) -> HookJSONOutput:
        """Judge every call before it runs, those of subagents included; "" is no opinion."""
        call = cast("PreToolUseHookInput", hook_input)
        if call["tool_name"] in {"Agent", "Task"} and call["tool_input"].get("isolation") == "worktree":
            return verdict("deny", REFUSAL)
        judged = await self._io.guard(ToolUse(call["tool_name"], call["tool_input"], call["cwd"], tool_use_id or ""))
        return verdict(judged.effect, judged.reason) if judged.effect else {}

    async def _look(self, hook_input: HookInput, tool_use_id: str | None, context: HookContext) -> HookJSONOutput:
        """Check the changes of a call without a path, and add messages to its result."""
        call = cast("PostToolUseHookInput | PostToolUseFailureHookInput", hook_input)
        use = ToolUse(call["tool_name"], call["tool_input"], call["cwd"], tool_use_id or "")
        words = "\n\n".join(filter(None, (await self._io.judge_result(use), await self._io.notice())))
        if not words:
            return {}
        return cast(
            "HookJSONOutput",
            {"hookSpecificOutput": {"hookEventName": call["hook_event_name"], "additionalContext": words}},
        )

    async def _can_use_tool(
        self, tool: str, tool_input: dict[str, Any], context: ToolPermissionContext
    ) -> PermissionResultAllow | PermissionResultDeny:
        decision = await self._io.decide(self._questions.pop(context.tool_use_id or "", ""))
        if not decision.allow:
            return PermissionResultDeny(message=decision.message)
        updates = (
            [PermissionUpdate(type="setMode", mode=cast("PermissionMode", decision.mode), destination="session")]
            if decision.mode
            else None
        )
        return PermissionResultAllow(
            updated_input=json.loads(decision.updated_input) if decision.updated_input else None,
            updated_permissions=updates,
        )


@contextmanager
def _asking(what: str) -> Iterator[None]:
    """Raise `AgentRefusedError` if the program refuses or does not answer in time; the SDK raises a
    bare exception for both."""
    try:
        yield
    except Exception as error:
        if type(error) is not Exception:
            raise
        raise AgentRefusedError(
            f"the agent does not {what}: {error}",
            hint="the setting is stored, and takes effect at the next start of its program",
        ) from error
