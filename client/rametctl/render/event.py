"""Events as people read them: a transcript for `watch`, one line each for `log`."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ramet.jsonify import enum_name, to_json

from rametctl.lines import Line, Span, line, printable, truncated
from rametctl.render.format import duration, local_time, money, plural
from rametctl.render.pull_request import pull_request_spans
from rametctl.render.request import answer_command, body_lines, parsed, shown_decision, title
from rametctl.render.session import HELD, state_style

if TYPE_CHECKING:
    from ramet.v1.event_pb2 import (
        AssistantMessage,
        ConflictChanged,
        Event,
        SessionSynced,
        StateChanged,
        ToolCall,
        ToolResult,
        TurnEnded,
    )
    from ramet.v1.session_pb2 import Prompt

RESULT_LINES = 6
ESSENTIAL = (
    "command",
    "file_path",
    "notebook_path",
    "path",
    "pattern",
    "url",
    "query",
    "skill",
    "description",
    "prompt",
)
"""The argument of a tool that says most about a call, by falling weight."""
LAST_WORDS = 12
"""Lines of a turn's last words that are shown at its end."""
PROTOCOL = frozenset({"control_line", "agent_notice"})
"""What the agent's program says about itself: nothing in it is for people."""
SILENT = PROTOCOL | {
    "partial", "prompt_sent", "prompt_received", "agent_started", "agent_attached", "turn_started",
}  # fmt: skip
"""Events that tell a reader of the transcript nothing that others do not."""


def call_summary(call: "ToolCall") -> str:
    """The essential argument of a call, on one line."""
    data = parsed(call.input_json)
    if isinstance(data, Mapping):
        for key in ESSENTIAL:
            if isinstance(data.get(key), str):
                return " ".join(printable(data[key]).split())
        text = json.dumps(data, ensure_ascii=False) if data else ""
        return " ".join(printable(text).split())
    return " ".join(printable(call.input_json).split())


class Transcript:
    """Turns events into lines. ``names`` maps session ids to names; with ``prefixed`` each line begins with the name."""

    def __init__(self, names: Mapping[str, str], *, prefixed: bool) -> None:
        self._names = names
        self._prefixed = prefixed

    def lines(self, event: "Event") -> list[Line]:
        lines = list(self._lines(event))
        if not self._prefixed or not event.session_id:
            return lines
        name = printable(self._names.get(event.session_id, event.session_id))
        return [
            Line(
                ((f"{name}  ", "magenta"), (" " * item.indent, ""), *item.spans),
                hang=len(name) + 2 + item.indent + item.hang,
            )
            for item in lines
        ]

    def _lines(self, event: "Event") -> Iterator[Line]:
        kind = event.WhichOneof("payload")
        if kind is None or kind in SILENT:
            return
        match kind:
            case "prompt_queued":
                yield from self._prompt_lines(event.prompt_queued.prompt)
            case "assistant_message":
                yield from _assistant_lines(event.assistant_message)
            case "user_message":
                for result in event.user_message.results:
                    yield from _result_lines(result)
            case "request_opened":
                request = event.request_opened.request
                yield line(("? ", "bold yellow"), (title(request), "bold yellow"))
                yield from body_lines(request)
                yield line(("→ " + answer_command(request), "green"), indent=2)
            case "turn_ended":
                yield line(*_turn_spans(event.turn_ended))
            case "command_output":
                texts = printable(event.command_output.text).strip("\n").split("\n")
                yield from (line((text, "dim"), indent=2) for text in texts)
            case "state_changed" if _is_told_otherwise(event.state_changed):
                return
            case _:
                yield Line(tuple(summary_spans(event)))

    def _prompt_lines(self, prompt: "Prompt") -> Iterator[Line]:
        """What is said and, unless it is the person, by whom. The daemon quotes the last prompt: its beginning is enough."""
        match prompt.source.partition(":"):
            case ("session", _, sender):
                yield from _marked("› ", prompt.text, "bold", note=f"from {printable(self._names.get(sender, sender))}")
            case ("daemon", _, _):
                first, *rest = prompt.text.strip().split("\n")
                yield from _marked("› ", first + (" …" if rest else ""), "bold", note="from the daemon")
            case _:
                yield from _marked("› ", prompt.text, "bold")


def last_words(events: "Sequence[Event]") -> Iterator[Line]:
    """The beginning of what the agent said at the end of the newest turn in ``events``; nothing where that failed."""
    turn = next((event.turn_ended for event in reversed(events) if event.HasField("turn_ended")), None)
    if turn is None or turn.is_error or not turn.text.strip():
        return
    texts = printable(turn.text).strip().split("\n")
    yield from (line((text, "dim")) for text in texts[:LAST_WORDS])
    if len(texts) > LAST_WORDS:
        yield line((f"… {plural(len(texts) - LAST_WORDS, 'more line')}", "dim"))


def summary(event: "Event", name: str) -> Line:
    """The event on one line: when, whose, what."""
    kind = event.WhichOneof("payload") or "event"
    return line(
        (f"{local_time(event.time)}  ", "dim"), (f"{printable(name)}  " if name else "", "magenta"),
        (f"{kind:<17}  ", "cyan"), *summary_spans(event), hang=21,
    )  # fmt: skip


def summary_spans(event: "Event") -> list[Span]:
    """What happened, in a few words on one line."""
    kind = event.WhichOneof("payload")
    match kind:
        case "state_changed":
            return _state_spans(event.state_changed)
        case "session_created":
            session = event.session_created.session
            return [(f"created {printable(session.name)} on {printable(session.branch)}", "dim")]
        case "session_updated":
            return [(f"changed: {', '.join(event.session_updated.fields)}", "dim")]
        case "session_removed":
            ref = event.session_removed.trash_ref
            return [
                (f"removed {printable(event.session_removed.name)}" + (f", kept as {ref}" if ref else ""), "yellow")
            ]
        case "session_archived":
            ref = event.session_archived.ref
            return [("archived" + (f", kept as {ref}" if ref else ""), "yellow")]
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
            told = "".join(f"; {printable(warning)}" for warning in restored.warnings)
            return [(f"brought back from the {printable(restored.origin)}{told}", "green")]
        case "prompt_queued":
            return [(_one_line(event.prompt_queued.prompt.text), "bold")]
        case "assistant_message":
            return [(_one_line(" ".join(_block_texts(event.assistant_message))), "")]
        case "user_message":
            results = event.user_message.results
            style = "red" if any(result.is_error for result in results) else "dim"
            return [(_one_line(" ".join(result.text for result in results) or event.user_message.text), style)]
        case "turn_ended":
            return _turn_spans(event.turn_ended)
        case "request_opened":
            request = event.request_opened.request
            asked = request.reason if request.input_json in {"", "{}"} else request.input_json
            return [(f"{title(request)} {_one_line(asked)}", "bold yellow")]
        case "request_closed":
            request = event.request_closed.request
            return [(f"{title(request)} {shown_decision(request)}", "yellow")]
        case "worktree_created":
            return [(f"worktree {printable(event.worktree_created.path)}", "dim")]
        case "agent_exited":
            return _exit_spans(event)
        case "command_started" | "command_ended":
            return _command_spans(event)
        case "command_output":
            return [(_one_line(event.command_output.text.strip().rpartition("\n")[2]), "dim")]
        case "setup_changed":
            return _setup_spans(event)
        case "path_refused":
            refused = event.path_refused
            paths = ", ".join(printable(path) for path in refused.paths)
            words = "changed what is not its own" if refused.changed else "kept from writing to what is not its own"
            return [(f"{words}: {paths}", "yellow")]
        case "ownership_changed":
            changed_paths = ", ".join(printable(path) for path in event.ownership_changed.paths)
            return [
                (
                    f"its paths now: {changed_paths or 'none'}"
                    if not event.ownership_changed.from_id
                    else f"was given {changed_paths}",
                    "dim",
                )
            ]
        case "warning":
            return [(f"warning: {_one_line(event.warning.message)}", "yellow")]
        case "agent_noise":
            return [(_one_line(event.agent_noise.text), "dim")]
        case "call_denied":
            return [(f"denied: {event.call_denied.method}: {_one_line(event.call_denied.message)}", "red")]
        case "plan_applied":
            applied = event.plan_applied
            changed = ", ".join(f"{change.action} {printable(change.thread)}" for change in applied.changes)
            return [(f"plan {printable(applied.name)} applied: {changed or 'nothing differs'}", "dim")]
        case "comment_changed":
            comment = event.comment_changed.comment
            where = f"{printable(comment.path)}:{comment.line}" if comment.line else printable(comment.path)
            return [(f"comment on {where} ", "cyan"), (enum_name(comment, "state") or "", "")]
        case "session_synced":
            return _sync_spans(event.session_synced)
        case "conflict_changed":
            return _conflict_spans(event.conflict_changed)
        case "plan_removed":
            return [(f"plan {printable(event.plan_removed.name)} is forgotten: nothing of it was left", "dim")]
        case "pull_request_changed":
            return pull_request_spans(event.pull_request_changed.pull_request)
        case "landing_changed":
            from rametctl.render.landing import landing_spans

            return [("landing: ", "dim"), *landing_spans(event.landing_changed.landing)]
        case "target_moved":
            moved = event.target_moved
            count = plural(len(moved.landing_ids), "landing")
            return [(f"{printable(moved.branch)} is at {moved.new_commit[:12]}, with {count}", "green")]
        case "store_rebuilt":
            return [(f"the database was damaged and is rebuilt; the old one: {event.store_rebuilt.quarantine}", "red")]
        case None:
            return [("an event that this rametctl does not know", "dim")]
        case _:
            return [(_fields(to_json(getattr(event, kind))), "dim")]


def _assistant_lines(message: "AssistantMessage") -> Iterator[Line]:
    aside = "  " if message.parent_tool_use_id else ""
    for block in message.blocks:
        match block.WhichOneof("block"):
            case "text":
                yield from _marked(f"{aside}● ", block.text, "")
            case "thinking":
                yield from _marked(f"{aside}… ", block.thinking, "dim")
            case "tool_call":
                yield line(
                    (f"{aside}▸ ", "cyan"), (printable(block.tool_call.tool), "bold cyan"),
                    (f" {call_summary(block.tool_call)}", ""), hang=len(aside) + 2,
                )  # fmt: skip
            case "other":
                yield line((f"{aside}[{printable(block.other)}]", "dim"))
            case None:
                continue
    if message.error:
        yield line((f"! {_one_line(message.error)}", "red"))


def _result_lines(result: "ToolResult") -> Iterator[Line]:
    texts = printable(result.text).rstrip().split("\n")
    style = "red" if result.is_error else "dim"
    if texts == [""]:
        if result.is_error:
            yield line(("failed without a word", "red"), indent=2)
        return
    for text in texts[:RESULT_LINES]:
        yield line((text, style), indent=2)
    if len(texts) > RESULT_LINES or result.truncated:
        more = "more" if result.truncated else f"{len(texts) - RESULT_LINES} more lines"
        yield line((f"… {more}", "dim"), indent=2)


def _marked(mark: str, text: str, style: str, note: str = "") -> Iterator[Line]:
    """A text with a mark before its first line, the others below its beginning."""
    for index, part in enumerate(printable(text).strip("\n").split("\n")):
        head: Span = (mark, style or "cyan") if index == 0 else (" " * len(mark), "")
        yield line(head, (part, style), (f"  ({note})" if note and index == 0 else "", "dim"), hang=len(mark))


def _turn_spans(turn: "TurnEnded") -> list[Span]:
    took = duration(_seconds(turn))
    if not turn.is_error:
        return [("✓ turn ended", "green"), (f"  {money(turn.cost_usd)}, {took}", "dim")]
    why = _one_line(turn.text) or turn.terminal_reason or turn.subtype
    return [(f"✗ turn failed: {why}", "red"), (f"  {money(turn.cost_usd)}, {took}", "dim")]


def _seconds(turn: "TurnEnded") -> float:
    return turn.duration.seconds + turn.duration.nanos / 1e9


def _state_spans(change: "StateChanged") -> list[Span]:
    new = enum_name(change, "new_state") or "unknown"
    reason = f": {_one_line(change.reason)}" if change.reason else ""
    return [("now ", "dim"), (new, state_style(new) or "bold"), (reason, "dim")]


def _is_told_otherwise(change: "StateChanged") -> bool:
    """Whether other events say it: prompts, turns and requests make these states, one after the other."""
    new, old = enum_name(change, "new_state"), enum_name(change, "old_state")
    if new == "waiting":
        return True
    return not change.reason and (new in {"queued", "starting", "working"} or (new == "idle" and old not in HELD))


def _exit_spans(event: "Event") -> list[Span]:
    exited = event.agent_exited
    how = exited.exit_status or "nobody saw how"
    if exited.stop_intent:
        return [(f"the agent was ended ({exited.stop_intent}): {how}", "dim")]
    tail = _one_line(exited.stderr_tail)
    return [(f"the agent ended: {how}" + (f": {tail}" if tail else ""), "dim" if how == "code 0" else "red")]


def _command_spans(event: "Event") -> list[Span]:
    from rametctl.terminals import exit_code, how_it_ended, title

    command = (event.command_started if event.HasField("command_started") else event.command_ended).command
    what = f"{command.id} {_one_line(title(command))}"
    if event.HasField("command_started"):
        return [(f"runs {what}", "dim")]
    failed = not command.stop_reason and exit_code(command) != 0
    return [(f"{what}: {how_it_ended(command)}", "red" if failed else "dim")]


def _sync_spans(sync: "SessionSynced") -> list[Span]:
    if sync.conflicts:
        return [("conflicts with its base", "yellow"), (f": {', '.join(map(printable, sync.conflicts[:3]))}", "")]
    return [("synced with its base", "green"), (f"  {sync.old_commit[:10]} → {sync.new_commit[:10]}", "dim")]


def _conflict_spans(change: "ConflictChanged") -> list[Span]:
    pair = change.conflict
    other = printable(pair.other_name) if pair.other_id else f"its base {printable(pair.other_name)}"
    if pair.red:
        files = ", ".join(printable(each.path) for each in pair.files[:3]) + (", …" if len(pair.files) > 3 else "")
        return [("will not merge ", "bold red"), (f"with {other}: {files}", "")]
    return [("merges ", "green"), (f"with {other}" + (" again" if change.old_kind > 2 else ""), "")]


def _setup_spans(event: "Event") -> list[Span]:
    change = event.setup_changed
    state = enum_name(change, "state") or "none"
    reason = f": {_one_line(change.reason)}" if change.reason else ""
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
    return _one_line(" ".join(parts))


def _one_line(text: str) -> str:
    return truncated(text[:2000], 200)
