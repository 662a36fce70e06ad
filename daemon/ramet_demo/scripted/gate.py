"""Checks before the scripted agent's tool calls: the host's hooks, the permission rules, the host's
permission prompt."""

import re
from typing import Any, NamedTuple

from ramet_demo.scripted.session import Session
from ramet_demo.scripted.wire import Frame, Request, new_id

RETIRED = (
    "The SDK host reconnected before its PreToolUse hook answered, so this tool call was not executed. "
    "No one denied it; retry the same tool call."
)
EDITS = frozenset({"Write", "Edit", "NotebookEdit"})
GUARDS = frozenset({"PreToolUse", "UserPromptSubmit"})
FREE = frozenset({"Read", "Glob", "Grep", "Task", "TaskStop", "ToolSearch"})
PERSONAL = frozenset({"AskUserQuestion", "ExitPlanMode"})  # only a person can answer: rules and modes do not count


class Verdict(NamedTuple):
    allowed: bool
    input: Frame
    message: str = ""
    asked: bool = False
    interrupt: bool = False


class _Call(NamedTuple):
    request: Request
    blocks: bool  # a failed hook blocks


def hook(session: Session, event: str, tool_use_id: str | None = None, **fields: Any) -> list[Frame]:
    """Call the host's hooks for an event, all at once, and return what they returned.

    A failed hook counts as ``{}`` unless it guards something and was registered with ``onFailure:
    "block"``; then it blocks. A hook that was withdrawn, because the host reconnected with other
    hooks, blocks too.
    """
    calls: list[_Call] = []
    for matcher in session.hooks.get(event, ()):
        if matcher.get("matcher") and not re.fullmatch(matcher["matcher"], fields.get("tool_name", "")):
            continue
        for callback in matcher["hookCallbackIds"]:
            body = {
                "session_id": session.transcript.session_id,
                "transcript_path": session.transcript.path,
                "cwd": session.cwd,
                "prompt_id": session.prompt_id,
                "permission_mode": session.mode,
                **({} if event == "UserPromptSubmit" else {"effort": {"level": "medium"}}),
                "hook_event_name": event,
                **fields,
                **({"tool_use_id": tool_use_id} if tool_use_id else {}),
            }
            named = tool_use_id or new_id()  # the real CLI names one even without a tool
            request = session.wire.request(subtype="hook_callback", callback_id=callback, input=body, tool_use_id=named)
            calls.append(_Call(request, matcher.get("onFailure") == "block"))
    session.wire.await_answers([call.request for call in calls])
    return [_returned(call, event) for call in calls]


def _returned(call: _Call, event: str) -> Frame:
    answer = call.request.answer
    if answer is not None and answer["subtype"] == "success":
        return answer.get("response") or {}
    if event not in GUARDS or (answer is not None and not call.blocks):
        return {}
    return {
        "decision": "block",
        "reason": RETIRED if answer is None else f"{event} hook failed: {answer.get('error', '')}",
    }


def pass_tool(session: Session, tool: str, given: Frame, tool_use_id: str) -> Verdict:
    """Decide whether a tool call may run, and with which input."""
    decision, reason = "", ""
    for returned in hook(session, "PreToolUse", tool_use_id, tool_name=tool, tool_input=given):
        output = returned.get("hookSpecificOutput") or {}
        given = output.get("updatedInput") or given
        if returned.get("decision") == "block" or output.get("permissionDecision") == "deny":
            return Verdict(
                False, given, output.get("permissionDecisionReason") or returned.get("reason") or "Denied by a hook"
            )
        decision = output.get("permissionDecision") or decision
    if tool == "ExitPlanMode" and session.mode != "plan":
        return Verdict(False, given, "<tool_use_error>You are not in plan mode.</tool_use_error>")
    if decision == "allow" or (decision != "ask" and _allowed(session, tool, given)):
        return Verdict(True, given)
    if session.mode == "dontAsk" or not session.flags.asks:
        reason = f"Permission to use {tool} has been denied."
        session.wire.emit(
            "system", subtype="permission_denied", tool_name=tool, tool_use_id=tool_use_id, message=reason
        )
        return Verdict(False, given, reason)
    return _ask(session, tool, given, tool_use_id)


def _allowed(session: Session, tool: str, given: Frame) -> bool:
    if tool in PERSONAL:
        return False
    if session.mode == "bypassPermissions" or tool in FREE or (session.mode == "acceptEdits" and tool in EDITS):
        return True
    return any(_covers(rule, tool, given) for rule in session.rules)


def _covers(rule: str, tool: str, given: Frame) -> bool:
    """Rules: ``Tool``, ``mcp__server``, ``Bash(exact command)``, ``Bash(prefix:*)``; the path of
    ``Write(…)`` is ignored."""
    name, _, content = rule.partition("(")
    if name != tool and not (name.startswith("mcp__") and tool.startswith(f"{name}__")):
        return False
    content = content.removesuffix(")")
    if not content or tool != "Bash":
        return True
    command: str = given.get("command", "")
    for wildcard in (":*", " *"):
        if content.endswith(wildcard):
            return command.startswith(content.removesuffix(wildcard))
    return command == content


def _ask(session: Session, tool: str, given: Frame, tool_use_id: str) -> Verdict:
    session.set_state("requires_action")
    # Claude Code asks with the plan in its plan file, and ignores one that only the call has.
    shown = {key: value for key, value in given.items() if (tool, key) != ("ExitPlanMode", "plan")}
    asked: Frame = {"tool_name": tool, "display_name": tool, "input": shown}
    if tool in PERSONAL:
        asked["requires_user_interaction"] = True
    else:
        asked["description"] = given.get("description") or given.get("file_path") or tool
        asked["permission_suggestions"] = [{"type": "setMode", "mode": "acceptEdits", "destination": "session"}]
    request = session.wire.request(subtype="can_use_tool", **asked, tool_use_id=tool_use_id)
    session.wire.await_answers([request])
    session.set_state("running")
    answer = request.answer or {"subtype": "error", "error": "Stream closed"}
    if answer["subtype"] != "success":
        return Verdict(False, given, f"Tool permission request failed: {answer.get('error', '')}", asked=True)
    response = answer["response"]
    if response["behavior"] != "allow":
        return Verdict(
            False, given, response.get("message") or "Denied", asked=True, interrupt=bool(response.get("interrupt"))
        )
    for update in response.get("updatedPermissions") or ():
        _update(session, update)
    return Verdict(True, response.get("updatedInput") or given, asked=True)


def _update(session: Session, update: Frame) -> None:
    if update["type"] == "setMode":
        session.set_mode(update["mode"])
    elif update["type"] == "addRules" and update.get("behavior") == "allow":
        for rule in update["rules"]:
            content = rule.get("ruleContent")
            session.rules.append(f"{rule['toolName']}({content})" if content else rule["toolName"])
