"""Events in one line, for `events` and for transcripts."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ramet.jsonify import enum_name, to_json
from ramet.v1.event_pb2 import (
    ApiRetry,
    AssistantMessage,
    BackgroundTask,
    ConflictChanged,
    Event,
    SessionSynced,
    StateChanged,
    TurnEnded,
)
from ramet.words import plural

from rametctl.console.lines import Line, Span, line, truncated
from rametctl.render.calls import call_summary
from rametctl.render.command import exit_code, how_it_ended
from rametctl.render.command import title as command_title
from rametctl.render.format import duration, local_time, money
from rametctl.render.landing import landing_spans
from rametctl.render.pull_request import pull_request_spans
from rametctl.render.request import shown_decision, title
from rametctl.render.session import state_style

PROTOCOL = frozenset({"control_line", "agent_notice", "partial"})
"""Reports of the agent's program about itself, and pieces of messages that also arrive complete;
not for people."""


def summary(event: "Event", name: str) -> Line:
    """Return the event in one line: time, session, event."""
    kind = event.WhichOneof("payload") or "event"
    return line(
        (f"{local_time(event.time)}  ", "dim"), (f"{name}  " if name else "", "magenta"),
        (f"{kind:<17}  ", "cyan"), *summary_spans(event), hang=21,
    )  # fmt: skip


def summary_spans(event: "Event") -> list[Span]:
    """Describe the event in a few words."""
    kind = event.WhichOneof("payload")
    match kind:
        case "state_changed":
            return _state_spans(event.state_changed)
        case "session_created":
            session = event.session_created.session
            return [(f"created {session.name} on {session.branch}", "dim")]
        case "session_updated":
            return [(f"changed: {', '.join(event.session_updated.fields)}", "dim")]
        case "session_removed":
            ref = event.session_removed.trash_ref
            return [(f"removed {event.session_removed.name}" + (f", saved as {ref}" if ref else ""), "yellow")]
        case "session_archived":
            ref = event.session_archived.ref
            return [("archived" + (f", saved as {ref}" if ref else ""), "yellow")]
        case "checkpoint_made":
            kept = event.checkpoint_made.checkpoint
            files = f", {plural(kept.files, 'file')} changed" if kept.files else ""
            return [(f"checkpoint {kept.number} ({enum_name(kept, 'reason')}){files}", "dim")]
        case "session_rewound":
            rewound = event.session_rewound
            talk = ", its conversation too" if rewound.conversation else ""
            undo = f"; checkpoint {rewound.before.number} holds what was before"
            return [(f"back at checkpoint {rewound.checkpoint.number}{talk}{undo}", "yellow")]
        case "session_restored":
            restored = event.session_restored
            warnings = "".join(f"; {warning}" for warning in restored.warnings)
            return [(f"restored from the {restored.origin}{warnings}", "green")]
        case "prompt_queued":
            return [(one_line(event.prompt_queued.prompt.text), "bold")]
        case "prompt_withdrawn":
            return [(f"taken back unread: {one_line(event.prompt_withdrawn.prompt.text)}", "dim")]
        case "assistant_message":
            return [(one_line(" ".join(_block_texts(event.assistant_message))), "")]
        case "user_message":
            results = event.user_message.results
            style = "red" if any(result.is_error for result in results) else "dim"
            return [(one_line(" ".join(result.text for result in results) or event.user_message.text), style)]
        case "turn_ended":
            return turn_spans(event.turn_ended)
        case "request_opened":
            request = event.request_opened.request
            asked = request.reason if request.input_json in {"", "{}"} else request.input_json
            return [(f"{title(request)} {one_line(asked)}", "bold yellow")]
        case "request_closed":
            request = event.request_closed.request
            return [(f"{title(request)} {shown_decision(request)}", "yellow")]
        case "worktree_created":
            return [(f"worktree {event.worktree_created.path}", "dim")]
        case "repo_changed":
            return [(f"repository {event.repo_changed.name} at {event.repo_changed.root}", "dim")]
        case "repo_removed":
            return [(f"repository {event.repo_removed.name} is forgotten", "dim")]
        case "worktree_removed":
            return [(f"removed worktree {event.worktree_removed.path}", "dim")]
        case "agent_exited":
            return _exit_spans(event)
        case "agent_started" | "agent_attached":
            started = getattr(event, kind)
            verb = {"agent_attached": "attached to"}.get(kind, "started")
            return [(f"{verb} the agent, generation {started.generation}", "dim")]
        case "prompt_sent" | "prompt_received":
            verb = {"prompt_sent": "sent to the agent"}.get(kind, "received by the agent")
            return [(f"prompt {getattr(event, kind).prompt_id} {verb}", "dim")]
        case "turn_started":
            return [(f"turn started, {event.turn_started.model or 'default model'}", "dim")]
        case "api_retry":
            return [(retry_words(event.api_retry), "yellow")]
        case "background_task":
            return [(background_words(event.background_task), "dim")]
        case "command_started" | "command_ended":
            return _command_spans(event)
        case "command_output":
            return [(one_line(event.command_output.text.strip().rpartition("\n")[2]), "dim")]
        case "setup_changed":
            return _setup_spans(event)
        case "path_refused":
            refused = event.path_refused
            paths = ", ".join(path for path in refused.paths)
            words = (
                "changed paths that it does not own"
                if refused.changed
                else "refused: writing to paths that it does not own"
            )
            return [(f"{words}: {paths}", "yellow")]
        case "ownership_changed":
            changed_paths = ", ".join(path for path in event.ownership_changed.paths)
            return [
                (
                    f"its paths now: {changed_paths or 'none'}"
                    if not event.ownership_changed.from_id
                    else f"was given {changed_paths}",
                    "dim",
                )
            ]
        case "warning":
            return [(f"warning: {one_line(event.warning.message)}", "yellow")]
        case "agent_noise":
            return [(one_line(event.agent_noise.text), "dim")]
        case "call_denied":
            return [(f"denied: {event.call_denied.method}: {one_line(event.call_denied.message)}", "red")]
        case "plan_applied":
            applied = event.plan_applied
            changed = ", ".join(f"{change.action} {change.thread}" for change in applied.changes)
            return [(f"plan {applied.name} applied: {changed or 'nothing differs'}", "dim")]
        case "comment_changed":
            comment = event.comment_changed.comment
            where = f"{comment.path}:{comment.line}" if comment.line else comment.path
            return [(f"comment on {where} ", "cyan"), (enum_name(comment, "state") or "", "")]
        case "session_synced":
            return _sync_spans(event.session_synced)
        case "conflict_changed":
            return _conflict_spans(event.conflict_changed)
        case "plan_removed":
            return [(f"plan {event.plan_removed.name} is forgotten: nothing of it was left", "dim")]
        case "pull_request_changed":
            return pull_request_spans(event.pull_request_changed.pull_request)
        case "landing_changed":
            return [("landing: ", "dim"), *landing_spans(event.landing_changed.landing)]
        case "target_moved":
            moved = event.target_moved
            count = plural(len(moved.landing_ids), "landing")
            return [(f"{moved.branch} is at {moved.new_commit[:12]}, with {count}", "green")]
        case "store_rebuilt":
            return [(f"the database was damaged and is rebuilt; the old one: {event.store_rebuilt.quarantine}", "red")]
        case None:
            return [("an event that this rametctl does not know", "dim")]
        case _:
            return [(_fields(to_json(getattr(event, kind))), "dim")]


def turn_spans(turn: "TurnEnded") -> list[Span]:
    took = duration(_seconds(turn))
    spent = money(turn.cost_usd) if turn.HasField("cost_usd") else "cost unknown"
    if not turn.is_error:
        return [("✓ turn ended", "green"), (f"  {spent}, {took}", "dim")]
    why = one_line(turn.text) or turn.terminal_reason or turn.subtype
    return [(f"✗ turn failed: {why}", "red"), (f"  {spent}, {took}", "dim")]


def _seconds(turn: "TurnEnded") -> float:
    return turn.duration.seconds + turn.duration.nanos / 1e9


def _state_spans(change: "StateChanged") -> list[Span]:
    new = enum_name(change, "new_state") or "unknown"
    reason = f": {one_line(change.reason)}" if change.reason else ""
    return [("now ", "dim"), (new, state_style(new) or "bold"), (reason, "dim")]


def _exit_spans(event: "Event") -> list[Span]:
    exited = event.agent_exited
    how = f" ({exited.exit_status})" if exited.exit_status else " with its keeper, as in a reboot"
    if exited.stop_intent:
        return [(f"stopped the agent{how}", "dim")]
    tail = one_line(exited.stderr_tail)
    style = "dim" if exited.exit_status == "code 0" else "red"
    return [(f"the agent ended{how}" + (f": {tail}" if tail else ""), style)]


def retry_words(retry: "ApiRetry", *, over: bool = False) -> str:
    """Describe why a model call failed, and when the agent repeats it."""
    error = one_line(retry.error).replace("_", " ") or "the model did not answer"
    of = f" of {retry.max_attempts}" if retry.max_attempts else ""
    if over:
        return f"⚠ {error}; tried {plural(retry.attempt, 'time')}{of}"
    wait = retry.delay.seconds + retry.delay.nanos / 1e9
    return f"⚠ {error}; again in {max(round(wait), 1)} s ({retry.attempt}{of})"


def background_words(task: "BackgroundTask") -> str:
    """Describe a change of a background command."""
    if task.status == "list":
        return f"{plural(task.running, 'background command')}"
    how = {"started": "in the background", "completed": "background work done"}.get(
        task.status, f"background work {task.status}"
    )
    return how + (f": {one_line(task.description)}" if task.description else "")


def _command_spans(event: "Event") -> list[Span]:
    command = (event.command_started if event.HasField("command_started") else event.command_ended).command
    what = f"{command.id} {one_line(command_title(command))}"
    if event.HasField("command_started"):
        return [(f"runs {what}", "dim")]
    failed = not command.stop_reason and exit_code(command) != 0
    return [(f"{what}: {how_it_ended(command)}", "red" if failed else "dim")]


def _sync_spans(sync: "SessionSynced") -> list[Span]:
    if sync.conflicts:
        return [("conflicts with its base", "yellow"), (f": {', '.join(sync.conflicts[:3])}", "")]
    return [("synced with its base", "green"), (f"  {sync.old_commit[:10]} → {sync.new_commit[:10]}", "dim")]


def was_red(change: "ConflictChanged") -> bool:
    """Return whether the two did not merge before the change."""
    return change.old_kind > 2


def _conflict_spans(change: "ConflictChanged") -> list[Span]:
    pair = change.conflict
    other = pair.other_name if pair.other_id else f"its base {pair.other_name}"
    if pair.red:
        files = ", ".join(each.path for each in pair.files[:3]) + (", …" if len(pair.files) > 3 else "")
        return [("will not merge ", "bold red"), (f"with {other}: {files}", "")]
    return [("merges ", "green"), (f"with {other}" + (" again" if was_red(change) else ""), "")]


def _setup_spans(event: "Event") -> list[Span]:
    change = event.setup_changed
    state = enum_name(change, "state") or "none"
    reason = f": {one_line(change.reason)}" if change.reason else ""
    style = {"failed": "red", "untrusted": "yellow", "done": "green"}.get(state, "dim")
    return [(f"setup {state}{reason}", style)]


def _block_texts(message: "AssistantMessage") -> Iterator[str]:
    for block in message.blocks:
        match block.WhichOneof("block"):
            case "text":
                yield block.text
            case "thinking":
                yield f"({block.thinking})"
            case "tool_call":
                yield f"▸ {block.tool_call.tool} {call_summary(block.tool_call)}"
            case _:
                continue
    if message.error:
        yield message.error


def _fields(data: Mapping[str, Any]) -> str:
    parts: Iterable[str] = (
        f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in data.items() if value
    )
    return one_line(" ".join(parts))


def one_line(text: str) -> str:
    return truncated(text[:2000], 200)
