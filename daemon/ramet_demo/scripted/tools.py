"""The scripted agent's tools: they really run, once hooks and the permission prompt allow it."""

import os
from collections.abc import Iterator
from typing import Any, NamedTuple

from ramet_demo.scripted import gate
from ramet_demo.scripted.script import Step
from ramet_demo.scripted.session import Session
from ramet_demo.scripted.wire import Frame, Interrupted, Terminated

REFUSED: Frame = {"non_execution_kind": "user-rejected"}
REJECTED = (
    "The user doesn't want to proceed with this tool use. The tool use was rejected (eg. if it was a file edit, the new_string was NOT "
    "written to the file). STOP what you are doing and wait for the user to tell you how to proceed."
)


class Outcome(NamedTuple):
    """Outcome of a call: ``content`` for the model, ``result`` for the host."""

    content: Any
    result: Any
    is_error: bool | None = None  # None: left out, as the real CLI does on success
    meta: Frame | None = None  # the permission decision
    denied: bool = False
    stop: Exception | None = None  # raised once the result has been sent: the turn ends with it


class _Failed(Exception):  # noqa: N818 -- the outcome of a tool
    """A tool failed; the model gets the text."""


def calls(step: Step) -> Iterator[tuple[str, Frame]]:
    """Return the tool calls (name, input) of a step, in any of their forms."""
    if "tool" in step:
        yield step["tool"], step.get("input", {})
    for call in step.get("tools", ()):
        yield call["tool"], call.get("input", {})
    if "ask" in step:
        asked = step["ask"]
        options = [{"label": label, "description": label} for label in ("yes", "no")]
        question = {"question": asked, "header": "Question", "options": options, "multiSelect": False}
        yield "AskUserQuestion", {"questions": asked if isinstance(asked, list) else [question]}
    if "plan" in step:
        yield "ExitPlanMode", {"plan": step["plan"]}
    if "mcp" in step:
        call = step["mcp"]
        yield f"mcp__{call['server']}__{call['tool']}", call.get("arguments", {})


def use(session: Session, tool: str, given: Frame, tool_use_id: str) -> Outcome:
    """Run one call from the hooks before it to the hooks after it."""
    if tool in session.flags.disallowed or not (tool in _TOOLS or tool.startswith("mcp__")):
        text = f"<tool_use_error>Error: No such tool available: {tool}</tool_use_error>"
        return Outcome(text, f"Error: No such tool available: {tool}", True)
    try:
        verdict = gate.pass_tool(session, tool, given, tool_use_id)
    except Interrupted as stop:
        return Outcome(REJECTED, "User rejected tool use", True, REFUSED, denied=True, stop=stop)
    if not verdict.allowed:
        meta: Frame = {"non_execution_kind": "permission-rule"}
        if verdict.asked:
            meta["permission_decision"] = {"decision": "reject", "source": "user_reject"}
        stop_ = Interrupted() if verdict.interrupt else None
        return Outcome(verdict.message, f"Error: {verdict.message}", True, meta, denied=True, stop=stop_)
    source = "user_temporary" if verdict.asked else "config"
    meta = {"permission_decision": {"decision": "accept", "source": source}}
    try:
        outcome = _run(session, tool, verdict.input, tool_use_id)._replace(meta=meta)
        returned = gate.hook(
            session,
            "PostToolUse",
            tool_use_id,
            tool_name=tool,
            tool_input=verdict.input,
            tool_response=outcome.result,
            duration_ms=1,
        )
    except _Failed as failed:
        returned = gate.hook(
            session,
            "PostToolUseFailure",
            tool_use_id,
            tool_name=tool,
            tool_input=verdict.input,
            error=str(failed),
            is_interrupt=False,
            duration_ms=1,
        )
        return Outcome(_with_context(str(failed), returned), f"Error: {failed}", True, meta)
    except Interrupted as stop:
        return Outcome(REJECTED, "User rejected tool use", True, meta | REFUSED, stop=stop)
    except Terminated as stop:
        return Outcome("Exit code 137", "Error: Exit code 137", True, meta, stop=stop)
    return outcome._replace(content=_with_context(outcome.content, returned))


def _with_context(content: Any, returned: list[Frame]) -> Any:
    """Return the result for the model, with the context that hooks add."""
    outputs = [one.get("hookSpecificOutput") or {} for one in returned]
    added = [str(output["additionalContext"]) for output in outputs if output.get("additionalContext")]
    if not added or not isinstance(content, str):
        return content
    return "\n".join([content, *(f"<system-reminder>\n{text}\n</system-reminder>" for text in added)])


def _run(session: Session, tool: str, given: Frame, tool_use_id: str) -> Outcome:
    if tool.startswith("mcp__"):
        _, server, name = tool.split("__", 2)
        if server not in session.servers:
            raise _Failed(f"No such MCP server: {server}")
        content, is_error = session.servers[server].use(name, given, tool_use_id)
        if is_error:
            raise _Failed(
                content if isinstance(content, str) else "\n".join(block.get("text", "") for block in content)
            )
        return Outcome(content, content)
    try:
        return _TOOLS[tool](session, given, tool_use_id)
    except (OSError, KeyError) as error:
        raise _Failed(f"{type(error).__name__}: {error}") from error


def _bash(session: Session, given: Frame, tool_use_id: str) -> Outcome:
    child = session.children.start(given["command"])
    if given.get("run_in_background"):
        task = session.start_task(given.get("description", "command"), tool_use_id, [{"text": "followup"}], child, 0)
        words = f"Command running in background with ID: {task.id}."
        return Outcome(words, {"stdout": "", "stderr": "", "interrupted": False, "backgroundTaskId": task.id}, False)
    try:
        session.wire.wait(lambda: child.status is not None)
    except (Interrupted, Terminated):
        session.children.kill(child)
        raise
    text = child.output()
    if child.status:
        raise _Failed(f"Exit code {child.status}\n{text}")
    result = {"stdout": text, "stderr": "", "interrupted": False, "isImage": False, "noOutputExpected": False}
    return Outcome(text, result, False)


def _write(session: Session, given: Frame, tool_use_id: str) -> Outcome:
    path = _path(session, given)
    kind = "update" if os.path.exists(path) else "create"  # noqa: PTH110
    before = _contents(path) if kind == "update" else ""
    os.makedirs(os.path.dirname(path), exist_ok=True)  # noqa: PTH103, PTH120
    with open(path, "w", encoding="utf-8") as file:  # noqa: PTH123
        file.write(given["content"])
    result = {
        "type": kind,
        "filePath": path,
        "content": given["content"],
        "structuredPatch": _patch(before, given["content"]) if kind == "update" else [],
        "originalFile": before or None,
        "userModified": False,
    }
    return Outcome(f"File {kind}d successfully at: {path}", result)


def _edit(session: Session, given: Frame, tool_use_id: str) -> Outcome:
    path, old = _path(session, given), given["old_string"]
    before = _contents(path)
    if before.count(old) != 1:
        raise _Failed(f"String to replace found {before.count(old)} times in {path}")
    with open(path, "w", encoding="utf-8") as file:  # noqa: PTH123
        file.write(before.replace(old, given["new_string"]))
    result = {
        "filePath": path,
        "oldString": old,
        "newString": given["new_string"],
        "originalFile": before,
        "structuredPatch": _patch(before, before.replace(old, given["new_string"])),
    }
    return Outcome(f"The file {path} has been updated successfully.", result)


def _read(session: Session, given: Frame, tool_use_id: str) -> Outcome:
    path = _path(session, given)
    text = _contents(path)
    return Outcome(text, {"type": "text", "file": {"filePath": path, "content": text}})


def _ask(session: Session, given: Frame, tool_use_id: str) -> Outcome:
    answers = given.get("answers", {})
    words = " ".join(f'"{question}"="{answer}".' for question, answer in answers.items())
    return Outcome(f"Your questions have been answered: {words}", {"questions": given["questions"], "answers": answers})


def _plan(session: Session, given: Frame, tool_use_id: str) -> Outcome:
    if session.mode == "plan":  # the host may have set another one with its answer
        session.set_mode("default")
    return Outcome(
        "User has approved exiting plan mode. You can now proceed.", {"plan": given.get("plan"), "isAgent": False}
    )


def _path(session: Session, given: Frame) -> str:
    return os.path.join(session.cwd, given["file_path"])  # noqa: PTH118


def _patch(before: str, after: str) -> list[Frame]:
    """Return the hunks of a change, as the real tools report them."""
    from difflib import SequenceMatcher  # hundreds of agents run without it

    old, new = before.splitlines(), after.splitlines()
    hunks: list[Frame] = []
    for group in SequenceMatcher(None, old, new).get_grouped_opcodes():
        lines: list[str] = []
        for kind, a, b, c, d in group:
            if kind == "equal":
                lines += [f" {line}" for line in old[a:b]]
            else:
                lines += [f"-{line}" for line in old[a:b]] + [f"+{line}" for line in new[c:d]]
        (_, a, _, c, _), (_, _, b, _, d) = group[0], group[-1]
        place = {"oldStart": a + 1, "oldLines": b - a, "newStart": c + 1, "newLines": d - c}
        hunks.append({**place, "lines": lines})
    return hunks


def _contents(path: str) -> str:
    with open(path, encoding="utf-8") as file:  # noqa: PTH123
        return file.read()


_TOOLS = {
    "Bash": _bash,
    "Write": _write,
    "Edit": _edit,
    "Read": _read,
    "AskUserQuestion": _ask,
    "ExitPlanMode": _plan,
}
