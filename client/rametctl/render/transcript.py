"""Events as the transcript that `watch` shows."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from ramet.jsonify import enum_name
from ramet.words import plural

from rametctl.lines import Line, Span, line
from rametctl.render.request import answer_command, body_lines, title
from rametctl.render.session import HELD

if TYPE_CHECKING:
    from ramet.v1.event_pb2 import AssistantMessage, Event, StateChanged, ToolResult
    from ramet.v1.session_pb2 import Prompt
from rametctl.render.event import PROTOCOL, call_summary, one_line, summary_spans, turn_spans

RESULT_LINES = 6
LAST_WORDS = 12
"""Lines of a turn's last words that are shown at its end."""
SILENT = PROTOCOL | {
    "partial", "prompt_sent", "prompt_received", "agent_started", "agent_attached", "turn_started",
}  # fmt: skip
"""Events that tell a reader of the transcript nothing that others do not."""


class Transcript:
    """Turns events into lines. ``names`` maps session ids to names; with ``prefixed`` each line begins with the name."""

    def __init__(self, names: Mapping[str, str], *, prefixed: bool) -> None:
        self._names = names
        self._prefixed = prefixed

    def lines(self, event: "Event") -> list[Line]:
        lines = list(self._lines(event))
        if not self._prefixed or not event.session_id:
            return lines
        name = self._names.get(event.session_id, event.session_id)
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
                yield line(*turn_spans(event.turn_ended))
            case "command_output":
                texts = event.command_output.text.strip("\n").split("\n")
                yield from (line((text, "dim"), indent=2) for text in texts)
            case "state_changed" if _is_told_otherwise(event.state_changed):
                return
            case _:
                yield Line(tuple(summary_spans(event)))

    def _prompt_lines(self, prompt: "Prompt") -> Iterator[Line]:
        """What is said and, unless it is the person, by whom. The daemon quotes the last prompt: its beginning is enough."""
        match prompt.source.partition(":"):
            case ("session", _, sender):
                yield from _marked("› ", prompt.text, "bold", note=f"from {self._names.get(sender, sender)}")
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
    texts = turn.text.strip().split("\n")
    yield from (line((text, "dim")) for text in texts[:LAST_WORDS])
    if len(texts) > LAST_WORDS:
        yield line((f"… {plural(len(texts) - LAST_WORDS, 'more line')}", "dim"))


def _is_told_otherwise(change: "StateChanged") -> bool:
    """Whether other events say it: prompts, turns and requests make these states, one after the other."""
    new, old = enum_name(change, "new_state"), enum_name(change, "old_state")
    if new == "waiting":
        return True
    return not change.reason and (new in {"queued", "starting", "working"} or (new == "idle" and old not in HELD))


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
                    (f"{aside}▸ ", "cyan"), (block.tool_call.tool, "bold cyan"),
                    (f" {call_summary(block.tool_call)}", ""), hang=len(aside) + 2,
                )  # fmt: skip
            case "other":
                yield line((f"{aside}[{block.other}]", "dim"))
            case None:
                continue
    if message.error:
        yield line((f"! {one_line(message.error)}", "red"))


def _result_lines(result: "ToolResult") -> Iterator[Line]:
    texts = result.text.rstrip().split("\n")
    style = "red" if result.is_error else "dim"
    if texts == [""]:
        if result.is_error:
            yield line(("failed without output", "red"), indent=2)
        return
    for text in texts[:RESULT_LINES]:
        yield line((text, style), indent=2)
    if len(texts) > RESULT_LINES or result.truncated:
        more = "more" if result.truncated else plural(len(texts) - RESULT_LINES, "more line")
        yield line((f"… {more}", "dim"), indent=2)


def _marked(mark: str, text: str, style: str, note: str = "") -> Iterator[Line]:
    """A text with a mark before its first line, the others below its beginning."""
    for index, part in enumerate(text.strip("\n").split("\n")):
        head: Span = (mark, style or "cyan") if index == 0 else (" " * len(mark), "")
        yield line(head, (part, style), (f"  ({note})" if note and index == 0 else "", "dim"), hang=len(mark))
