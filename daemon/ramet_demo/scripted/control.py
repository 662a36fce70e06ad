"""The control requests that the scripted agent obeys."""

import os
from typing import Any

from ramet_demo.scripted.flags import VERSION
from ramet_demo.scripted.mcp import Server
from ramet_demo.scripted.session import Session
from ramet_demo.scripted.wire import Frame, timestamp


class Refused(Exception):  # noqa: N818 -- the answer to a request
    """Raised to answer a control request with an error."""


def serve(session: Session, frame: Frame) -> None:
    """Answer one control request."""
    request = frame["request"]
    subtype = request["subtype"]
    envelope: Frame = {"subtype": "success", "request_id": frame["request_id"]}
    again = session.initialized
    try:
        envelope["response"] = _answer(session, request)
    except Refused as refused:
        envelope = {**envelope, "subtype": "error", "error": str(refused), "error_code": "unsupported_request"}
    if subtype == "initialize":
        pending = [open_.frame for open_ in session.wire.requests.values() if open_.subtype == "can_use_tool"]
        envelope.update(pending_permission_requests=pending, pending_user_dialog_requests=[])
    session.wire.send({"type": "control_response", "response": envelope})
    if subtype == "initialize" and again:
        session.send_tasks()
    elif subtype == "set_permission_mode" and envelope["subtype"] == "success":
        session.set_mode(request["mode"])


def _answer(session: Session, request: Frame) -> Frame:
    subtype = request["subtype"]
    if subtype == "initialize":
        return _initialize(session, request)
    if subtype == "interrupt":
        return _interrupt(session, request)
    if subtype == "set_permission_mode":
        if request["mode"] == "bypassPermissions" != session.flags.mode:
            raise Refused("Cannot set permission mode to bypassPermissions: the session was not launched with it")
        return {"mode": request["mode"]}
    if subtype == "set_model":
        session.model = request["model"] or session.flags.model
        if session.flags.replay:
            output = f"<local-command-stdout>Set model to `{session.model}`</local-command-stdout>"
            message = {"role": "user", "content": output}
            session.wire.emit("user", message=message, parent_tool_use_id=None, timestamp=timestamp(), isReplay=True)
        return {"model": session.model}
    if subtype == "apply_flag_settings":
        os.environ.update(request["settings"].get("env") or {})
        return {}
    if subtype == "get_context_usage":
        used = sum(entry["inputTokens"] for entry in session.ledger.total.values())
        return {
            "categories": [],
            "totalTokens": used,
            "maxTokens": 1_000_000,
            "percentage": used // 10_000,
            "model": session.model,
        }
    if subtype == "get_session_cost":
        return {"text": f"Estimated cost: ${session.ledger.dollars:.4f}"}
    if subtype == "mcp_status":
        return {"mcpServers": [{"name": server.name, "status": server.status} for server in session.servers.values()]}
    if subtype == "stop_task" and request["task_id"] in session.tasks:
        task = session.tasks[request["task_id"]]
        if task.child:
            session.children.kill(task.child)
        session.end_task(task, "stopped")
        return {}
    raise Refused(f"Unsupported control request subtype: {subtype}")


def _initialize(session: Session, request: Frame) -> Frame:
    hooks: dict[str, Any] | None = request.get("hooks")
    if hooks is not None:
        # A host that reconnects with new hooks cannot answer the calls to its predecessor's hooks.
        for asked in [asked for asked in session.wire.requests.values() if asked.subtype == "hook_callback"]:
            session.wire.withdraw(asked)
        session.hooks = hooks
    for name in (*session.flags.sdk_servers, *(request.get("sdkMcpServers") or ())):
        if name not in session.servers:
            session.servers[name] = Server(name, session.wire)
    session.initialized = True
    return {
        "commands": [],
        "agents": [],
        "models": [],
        "output_style": "default",
        "available_output_styles": ["default"],
        "account": {"tokenSource": "none", "apiKeySource": "ANTHROPIC_API_KEY", "apiProvider": "firstParty"},
        "pid": os.getpid(),
        "claude_code_version": VERSION,
        "current_permission_mode": session.mode,
        "session_state": session.state,
        "hooks_applied": True,
        "hook_on_failure_supported": True,
        "capabilities": [],
    }


def _interrupt(session: Session, request: Frame) -> Frame:
    if session.working:
        for asked in [
            asked for asked in session.wire.requests.values() if asked.subtype in {"can_use_tool", "hook_callback"}
        ]:
            session.wire.withdraw(asked)
        session.wire.interrupted = True
    queued = [prompt.uuid for prompt in session.queue if prompt.uuid]
    if not request.get("cancel_queued"):
        return {"still_queued": queued}
    session.queue = [prompt for prompt in session.queue if prompt.uuid is None]
    session.transcript.seen.update(queued)  # as the real CLI, which ignores a repeated one
    for uuid in queued:
        session.lifecycle(uuid, "cancelled")
    return {"still_queued": [], "cancelled": queued}
