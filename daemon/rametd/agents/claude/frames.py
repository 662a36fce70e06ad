"""Read Claude Code's lines: each becomes one typed event and the facts that the daemon acts on.

New kinds of lines may appear, and no line can end a session. A field of an unexpected type counts
as absent, and an unknown line becomes an `AgentNotice`. Source: the schema of stream-json as of
Claude Code 2.1.332.
"""

import json
import re
from collections.abc import Callable
from typing import Any

from ramet.v1 import event_pb2

from rametd.agents import edits
from rametd.agents.base import (
    Activity,
    Answered,
    Background,
    CallFailed,
    ConversationMissing,
    Doing,
    Fact,
    Frame,
    LimitReported,
    PromptReturned,
    PromptSeen,
    Said,
    Trouble,
    TurnBegan,
    TurnSkipped,
)
from rametd.agents.claude.control import (
    TOOL_KINDS,
    read_control_cancel,
    read_control_request,
    read_control_response,
)
from rametd.agents.values import Message, count, number, parse, rows, table, text
from rametd.domain.calls import describe_call
from rametd.domain.models import LedgerEntry, Tokens
from rametd.domain.text import first_line

TEXT_LIMIT = 16 << 20
"""Maximum characters of an agent's message in its event, which must fit into one gRPC message. The
frame has the complete text."""
RESULT_TEXT_LIMIT = 64 * 1024
NOISE_LIMIT = 4096
DEFERRING_TASKS = frozenset({"local_agent", "local_workflow"})
"""Background tasks that start a turn when they end; not a background shell, which may run
forever."""
UNKNOWN_CONVERSATION = re.compile(r"No (?:conversation|message) found", re.IGNORECASE)
"""Refusal to continue: the transcript is gone, or the message to continue after is. After a
compaction the program reads no earlier messages."""
TROUBLES = {
    "server_error": Trouble.OVERLOAD,
    "overloaded": Trouble.OVERLOAD,
    "rate_limit": Trouble.OVERLOAD,
    "authentication_failed": Trouble.LOGIN,
}
"""Texts of an assistant message that the program writes in place of a failed answer."""
CONTROL_TYPES = frozenset({"control_request", "control_response", "control_cancel_request"})

Reader = Callable[[Message, event_pb2.Event], tuple[Fact, ...]]


def read_frame(session_id: str, generation: int, start: int, end: int, line: bytes) -> Frame:
    """Map one line, newline included. Never raises for the content of a line."""
    event = event_pb2.Event(session_id=session_id, generation=generation, offset=start)
    try:
        message = parse(line)
        if message is not None:
            kind = text(message, "type")
            facts = READERS.get(kind, read_notice)(message, event)
            return Frame(start, end, line, event, facts, message if kind in CONTROL_TYPES else None)
    except RecursionError:  # nested too deeply: noise
        pass
    event.agent_noise.text = line[:NOISE_LIMIT].decode("utf-8", "replace").rstrip("\n")
    return Frame(start, end, line, event, (), None)


def read_notice(message: Message, event: event_pb2.Event) -> tuple[Fact, ...]:
    event.agent_notice.type = text(message, "type")
    event.agent_notice.subtype = text(message, "subtype")
    return ()


def read_assistant(message: Message, event: event_pb2.Event) -> tuple[Fact, ...]:
    body = table(message, "message")
    said = event.assistant_message
    said.message_id = text(body, "id")
    said.model = text(body, "model")
    said.parent_tool_use_id = text(message, "parent_tool_use_id")
    said.error = text(message, "error")
    for block in rows(body, "content"):
        if isinstance(block, dict):
            add_block(said, block)
    if said.parent_tool_use_id:
        return ()
    facts: list[Fact] = []
    if words := doing(rows(body, "content")):
        facts.append(Doing(words))
    if message_id := text(message, "uuid"):
        facts.append(Said(text(message, "session_id"), message_id))
    if (trouble := TROUBLES.get(said.error)) is not None:
        facts.append(CallFailed(trouble))
    return tuple(facts)


def doing(blocks: list[Any]) -> str:
    """Describe the last call or text block of a message in one line, except a call that asks a
    person: its request says the same."""
    for block in reversed(blocks):
        if isinstance(block, dict):
            match text(block, "type"):
                case "tool_use" if text(block, "name") not in TOOL_KINDS:
                    return describe_call(text(block, "name"), table(block, "input"))
                case "text" if words := first_line(text(block, "text")):
                    return words
    return ""


def add_block(said: event_pb2.AssistantMessage, block: Message) -> None:
    match text(block, "type"):
        case "text":
            said.blocks.add(text=bounded(text(block, "text")))
        case "thinking":
            said.blocks.add(thinking=bounded(text(block, "thinking")))
        case "tool_use":
            call = said.blocks.add().tool_call
            call.tool_use_id = text(block, "id")
            call.tool = text(block, "name")
            call.input_json = json.dumps(table(block, "input"), ensure_ascii=False)
        case other:
            said.blocks.add(other=other)


def bounded(words: str) -> str:
    """Cut ``words`` at the limit, with a note about the rest."""
    left = len(words) - TEXT_LIMIT
    return words if left <= 0 else f"{words[:TEXT_LIMIT]}\n… {left:,} more characters"


def read_user(message: Message, event: event_pb2.Event) -> tuple[Fact, ...]:
    given = event.user_message
    given.SetInParent()
    given.parent_tool_use_id = text(message, "parent_tool_use_id")
    content = table(message, "message").get("content")
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    for block in blocks if isinstance(blocks, list) else []:
        if not isinstance(block, dict):
            continue
        if text(block, "type") == "tool_result":
            whole = flatten(block.get("content"))
            given.results.add(
                tool_use_id=text(block, "tool_use_id"),
                text=whole[:RESULT_TEXT_LIMIT],
                is_error=block.get("is_error") is True,
                truncated=len(whole) > RESULT_TEXT_LIMIT,
                edit=edits.reported(table(message, "tool_use_result")),
            )
        elif text(block, "type") == "text":
            given.text += text(block, "text")
    if message.get("isReplay") is True and (prompt_id := text(message, "uuid")):
        given.prompt_id = prompt_id
        return (PromptSeen(prompt_id),)
    return ()


def flatten(content: object) -> str:
    """Return the text of a tool's answer: a string, or blocks, where a block without text is
    named."""
    if isinstance(content, str):
        return content
    parts = []
    for block in content if isinstance(content, list) else []:
        if isinstance(block, dict):
            kind = text(block, "type")
            parts.append(text(block, "text") if kind == "text" else f"[{kind}]")
    return "\n".join(parts)


def read_result(message: Message, event: event_pb2.Event) -> tuple[Fact, ...]:
    reason = text(message, "terminal_reason")
    subtype = text(message, "subtype")
    is_error = message.get("is_error") is True or subtype not in {"", "success"}
    errors = [str(error) for error in rows(message, "errors")]
    if any(UNKNOWN_CONVERSATION.match(error) for error in errors):
        read_notice(message, event)  # the program reports this and exits; no turn has run
        return (ConversationMissing(),)
    if not is_error and text(table(message, "origin"), "kind") == "task-notification" and message.get("num_turns") == 0:
        read_notice(message, event)
        return (TurnSkipped(),)
    words = text(message, "result") or "; ".join(errors)
    index = count(message, "result_index")
    costs = tuple(
        LedgerEntry(
            session_id="",
            generation=0,
            result_index=index,
            model=model,
            cost_usd=number(use, "costUSD"),
            tokens=Tokens(
                int(number(use, "inputTokens")),
                int(number(use, "outputTokens")),
                int(number(use, "cacheReadInputTokens")),
                int(number(use, "cacheCreationInputTokens")),
            ),
            time=0.0,
        )
        for model, use in table(message, "model_usage_since_last_result").items()
        if isinstance(use, dict)
    )
    ended = event.turn_ended
    ended.subtype, ended.is_error, ended.text, ended.terminal_reason = subtype, is_error, bounded(words), reason
    ended.result_index = index
    ended.cost_usd = sum(entry.cost_usd or 0.0 for entry in costs)
    total = sum((entry.tokens for entry in costs), Tokens())
    ended.tokens.input, ended.tokens.output = total.input, total.output
    ended.tokens.cache_read, ended.tokens.cache_write = total.cache_read, total.cache_write
    ended.duration.FromMilliseconds(count(message, "duration_ms"))
    full = (CallFailed(Trouble.FULL),) if is_error and reason == "prompt_too_long" else ()
    return (
        *full,
        Answered(
            index,
            is_error,
            reason.startswith("aborted"),
            words,
            number(message, "total_cost_usd"),
            costs,
            count(message, "duration_ms") / 1000,
        ),
    )


def read_system(message: Message, event: event_pb2.Event) -> tuple[Fact, ...]:
    return SYSTEM_READERS.get(text(message, "subtype"), read_notice)(message, event)


def read_init(message: Message, event: event_pb2.Event) -> tuple[Fact, ...]:
    began = TurnBegan(
        text(message, "model"),
        text(message, "permissionMode"),
        text(message, "cwd"),
        text(message, "claude_code_version"),
    )
    event.turn_started.model, event.turn_started.mode = began.model, began.mode
    event.turn_started.cwd, event.turn_started.version = began.cwd, began.version
    seen = tuple(PromptSeen(uuid) for uuid in rows(message, "user_message_uuids") if isinstance(uuid, str))
    return (began, *seen)


def read_activity(message: Message, event: event_pb2.Event) -> tuple[Fact, ...]:
    read_notice(message, event)
    return (Activity(text(message, "state")),)


def read_task(message: Message, event: event_pb2.Event) -> tuple[Fact, ...]:
    task = event.background_task
    task.task_id = text(message, "task_id")
    task.tool_use_id = text(message, "tool_use_id")
    task.foreground = message.get("is_backgrounded") is False
    task.description = text(message, "description") or text(message, "summary")
    words = {"task_started": "started", "task_progress": "progress"}
    status = text(message, "status") or text(table(message, "patch"), "status")
    task.status = words.get(text(message, "subtype"), status or "progress")
    return ()


def read_tasks(message: Message, event: event_pb2.Event) -> tuple[Fact, ...]:
    tasks = [task for task in rows(message, "tasks") if isinstance(task, dict)]
    running = sum(1 for task in tasks if text(task, "task_type") in DEFERRING_TASKS)
    event.background_task.status = "list"
    event.background_task.running = running
    described = [(text(task, "task_id"), text(task, "command") or text(task, "description")) for task in tasks]
    return (Background(running, tuple(described)),)


def read_retry(message: Message, event: event_pb2.Event) -> tuple[Fact, ...]:
    retry = event.api_retry
    retry.attempt = count(message, "attempt")
    retry.max_attempts = count(message, "max_retries")
    retry.delay.FromMilliseconds(count(message, "retry_delay_ms"))
    error = message.get("error")
    # The CLI writes "unknown" where no answer came: a refused connection, a proxy that is down.
    retry.error = error if isinstance(error, str) and error != "unknown" else ""
    words = retry.error.replace("_", " ") or "the model did not answer"
    return (Doing(f"retrying: {words} ({retry.attempt} of {retry.max_attempts})"),)


def read_rate_limit(message: Message, event: event_pb2.Event) -> tuple[Fact, ...]:
    info = table(message, "rate_limit_info")
    limit = event.rate_limit
    limit.status, limit.kind = text(info, "status"), text(info, "rateLimitType")
    limit.utilization = number(info, "utilization")
    reset = number(info, "resetsAt")
    if 0 < reset < 253402300800:  # up to the year 9999, where timestamps end
        limit.reset_time.FromSeconds(int(reset))
    return (LimitReported(limit.status, reset),)


def read_stream_event(message: Message, event: event_pb2.Event) -> tuple[Fact, ...]:
    written = table(message, "event")
    delta = table(written, "delta")
    partial = event.partial
    partial.text, partial.thinking = text(delta, "text"), text(delta, "thinking")
    if text(written, "type") == "message_delta":
        partial.output_tokens = int(number(table(written, "usage"), "output_tokens"))
    partial.parent_tool_use_id = text(message, "parent_tool_use_id")
    return ()


def read_lifecycle(message: Message, event: event_pb2.Event) -> tuple[Fact, ...]:
    read_notice(message, event)
    state = event.agent_notice.subtype = text(message, "state")
    prompt_id = text(message, "command_uuid")
    match state:
        case "queued":  # no receipt: the agent has it in memory only, and loses it when it is killed before that turn
            return ()
        case "cancelled":
            return (PromptReturned(prompt_id),)
        case _:
            return (PromptSeen(prompt_id, repeated=state == "completed"),)


SYSTEM_READERS: dict[str, Reader] = {
    "init": read_init,
    "session_state_changed": read_activity,
    "task_started": read_task,
    "task_progress": read_task,
    "task_updated": read_task,
    "task_notification": read_task,
    "background_tasks_changed": read_tasks,
    "api_retry": read_retry,
}

READERS: dict[str, Reader] = {
    "assistant": read_assistant,
    "user": read_user,
    "result": read_result,
    "system": read_system,
    "stream_event": read_stream_event,
    "rate_limit_event": read_rate_limit,
    "command_lifecycle": read_lifecycle,
    "control_request": read_control_request,
    "control_response": read_control_response,
    "control_cancel_request": read_control_cancel,
}
