"""A session's conversation: events become entries, entries become styled lines.

Every surface draws from here: `watch` prints entries as they settle, `logs` prints all of them, the
dashboard redraws those that changed. An entry is one thing that a reader sees: a prompt, a text, a
tool call with its request and its result, a turn's end.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from ramet.jsonify import enum_name
from ramet.v1.attention_pb2 import AttentionRequest
from ramet.v1.event_pb2 import ApiRetry, Event, StateChanged, ToolCall, ToolResult, TurnEnded
from ramet.v1.session_pb2 import Prompt, Session
from ramet.v1.terminal_pb2 import Command
from ramet.v1.worktree_pb2 import Checkpoint
from ramet.words import plural, tokens

from rametctl.console.lines import Line, Look, Span, line, truncated
from rametctl.options import mode_name
from rametctl.render.calls import COUNTED, OWN, counted, result_texts, todos, words
from rametctl.render.command import exit_code, how_it_ended
from rametctl.render.command import title as command_title
from rametctl.render.diff import edit_counts, edit_lines
from rametctl.render.event import PROTOCOL, background_words, one_line, retry_words, summary_spans, was_red
from rametctl.render.format import duration, local_time, money, parsed, seconds_of
from rametctl.render.markdown import markdown_lines
from rametctl.render.request import (
    answer_lines,
    body_lines,
    kind_name,
    questions,
    requested_edit_lines,
    shown_decision,
    title,
)
from rametctl.render.session import HELD

RESULT_LINES = 5
"""Lines of a result that a folded call shows: of a command the last ones, of anything else the
first."""
EDIT_LINES = 40
"""Lines of a diff that a folded call shows."""
NEW_FILE_LINES = 10
"""The same for a file that the call creates."""
COMMAND_LINES = 5
"""Lines of a command, and of a prompt of the daemon's, that are shown folded."""
THOUGHT_LINES = 3
LAST_WORDS = 12
"""Lines of a turn's last words that are shown at its end."""
OUTPUT_KEPT = 64 * 1024
"""Characters of a command's output that an entry holds: the newest."""
MOST_ENTRIES = 5000
REFUSED = "The user doesn't want to "
"""How Claude Code begins the result of a call that an interrupt ended."""
BACKGROUND = "Command running in background with ID: "
"""How Claude Code begins the result of a command that it runs in the background; an event of its
own describes the command."""
NO_OUTPUT = re.compile(r"^\(\S+ completed with no output\)$")
"""The result of a command without output."""
EXIT_CODE = re.compile(r"Exit code (\d+)")
"""How Claude Code begins the result of a command that failed."""
SILENT = PROTOCOL | {
    "agent_attached", "agent_started", "daemon_started", "daemon_stopped", "session_created", "turn_started",
    "worktree_created", "worktree_removed",
}  # fmt: skip
"""Events that only repeat others for a reader."""
SILENT_FIELDS = frozenset({"base_commit", "budget_warned", "landed_reason", "result"})
"""Changes of a session that other events report."""


# ── entries ───────────────────────────────────────────────────────────────────────────────────────


@dataclass(eq=False)
class Entry:
    """One thing that a reader sees. ``seq`` is the number of its first event; ``depth`` is 1 for
    what a subagent does."""

    seq: int
    depth: int = field(default=0, kw_only=True)

    @property
    def settled(self) -> bool:
        """Return whether no later event is expected to change the entry."""
        return True


@dataclass(eq=False)
class Said(Entry):
    """A prompt. ``note`` says who wrote it, unless that is the person."""

    text: str
    note: str = ""


@dataclass(eq=False)
class Words(Entry):
    """A message of the model, or its thinking."""

    text: str
    thinking: bool = False


@dataclass(eq=False)
class Call(Entry):
    """A tool call, with the request that it waits for and its result."""

    call: "ToolCall"
    request: "AttentionRequest | None" = None
    result: "ToolResult | None" = None
    cut_off: bool = False
    """Whether the turn ended before the call had a result."""
    output_file: str = ""
    """File that receives its output while it runs."""

    @property
    def settled(self) -> bool:
        return self.result is not None or self.cut_off

    @property
    def waits(self) -> bool:
        return not self.settled and self.request is not None and is_open(self.request)


@dataclass(eq=False)
class Asked(Entry):
    """A request that no call of the transcript waits for."""

    request: "AttentionRequest"

    @property
    def settled(self) -> bool:
        return not is_open(self.request)

    @property
    def waits(self) -> bool:
        return is_open(self.request)


def open_requests(entries: "Iterable[Entry]") -> "list[AttentionRequest]":
    """Return the open requests among the entries."""
    found = [each.request for each in entries if isinstance(each, Call | Asked) and each.waits]
    return [request for request in found if request is not None]


@dataclass(eq=False)
class Ended(Entry):
    """The end of a turn. ``held`` says that the daemon ended it; ``said`` whether its text was
    shown before."""

    turn: "TurnEnded"
    said: bool = False
    held: bool = False
    checkpoint: "Checkpoint | None" = None
    over: bool = False
    """Whether something else has happened since."""

    @property
    def settled(self) -> bool:
        return self.checkpoint is not None or self.over


@dataclass(eq=False)
class Retries(Entry):
    """Model calls that failed and are tried again; the newest counts."""

    retry: "ApiRetry"
    over: bool = False

    @property
    def settled(self) -> bool:
        return self.over


@dataclass(eq=False)
class Ran(Entry):
    """A command of the session's worktree: a setup, a check, or one that a person runs."""

    command: "Command"
    output: str = ""
    lines_before: int = 0
    """Number of dropped lines of the output."""
    ended: bool = False

    @property
    def settled(self) -> bool:
        return self.ended


@dataclass(eq=False)
class Note(Entry):
    """Anything else, in a few words."""

    spans: tuple[Span, ...]


def is_open(request: "AttentionRequest") -> bool:
    return enum_name(request, "state") in {"open", None}


# ── the model ─────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Status:
    """The present activity of a session."""

    state: str = ""
    reason: str = ""
    since: float = 0.0
    """Begin of the turn or the state, in seconds since the epoch; 0 if unknown."""
    in_turn: bool = False
    tokens: int = 0
    """Tokens that the model has reported for this turn."""
    text: str = ""
    """Words of a message that is not complete."""
    thinking: str = ""
    queued: "dict[str, Prompt]" = field(default_factory=dict)
    """Prompts that the agent does not have yet, by id."""
    sent: set[str] = field(default_factory=set)
    """Ids of queued prompts that are on their way to the agent, and can no longer be taken back."""
    background: int = 0

    @property
    def written(self) -> int:
        """Tokens of this turn, those of the unfinished message estimated."""
        return self.tokens + (len(self.text) + len(self.thinking)) // 4


class Conversation:
    """The newest ``most`` entries of one session, oldest first.

    ``worktree`` is what paths are relative to; ``names`` maps ids of sessions to names.
    """

    def __init__(self, *, worktree: str = "", names: Mapping[str, str] | None = None, most: int = MOST_ENTRIES) -> None:
        self.worktree = worktree
        self.dropped = False
        """Whether older entries were dropped."""
        self._most = most
        self.entries: list[Entry] = []
        self.status = Status()
        self._names = names if names is not None else {}
        self._calls: dict[str, Call] = {}
        self._asked: dict[str, Asked | Call] = {}
        self._commands: dict[str, Ran] = {}
        self._said: dict[str, Said] = {}
        self._spoke = False
        self._limit = ""
        self._foreground: set[str] = set()

    def add(self, event: "Event") -> list[Entry]:
        """Add the next event; return the new and changed entries."""
        kind = event.WhichOneof("payload")
        changed: list[Entry] = []
        if kind == "partial":
            self._partial(event)
            return []
        last = self.entries[-1] if self.entries else None
        if kind is not None and kind not in SILENT:
            changed = list(getattr(self, f"_{kind}", self._other)(event))
        if kind == "turn_started":
            self._turn_started(event)
        if isinstance(last, Ended | Retries) and not last.settled and any(each is not last for each in changed):
            last.over = True
            changed.insert(0, last)
        if len(self.entries) > self._most:
            self.dropped = True
            del self.entries[: -self._most]
        return list(dict.fromkeys(changed))

    def running(self) -> list[Call]:
        """Calls of the agent itself that have no result yet."""
        return [each for each in self._calls.values() if not each.settled and not each.depth]

    def turns(self, count: int) -> list[Entry]:
        """Return the entries of the newest ``count`` turns; a running turn is one."""
        ends = [index for index, each in enumerate(self.entries) if isinstance(each, Ended)]
        if ends and not any(isinstance(each, Said | Words | Call) for each in self.entries[ends[-1] + 1 :]):
            ends.pop()
        return self.entries[ends[-count] + 1 if len(ends) >= count else 0 :]

    def contains_turns(self, count: int) -> bool:
        """Return whether the entries contain the newest ``count`` turns from their beginning."""
        return len(self.turns(count)) < len(self.entries)

    # Events. Each method takes the event and yields the entries that it adds or changes.

    def _add(self, entry: Entry) -> Entry:
        self.entries.append(entry)
        return entry

    def _other(self, event: "Event") -> Iterator[Entry]:
        note, last = Note(event.seq, tuple(summary_spans(event))), self.entries[-1] if self.entries else None
        if not isinstance(last, Note) or last.spans != note.spans:
            yield self._add(note)

    def _partial(self, event: "Event") -> None:
        piece, status = event.partial, self.status
        if piece.parent_tool_use_id:
            return
        status.text += piece.text
        status.thinking += piece.thinking
        if piece.output_tokens:
            status.tokens += piece.output_tokens
            status.text = status.thinking = ""

    def _turn_started(self, event: "Event") -> None:
        status = self.status
        if not status.in_turn:
            status.in_turn, status.tokens, status.since = True, 0, seconds_of(event.time)
            self._spoke = False
        if not self.worktree:
            self.worktree = event.turn_started.cwd

    def _prompt_queued(self, event: "Event") -> Iterator[Entry]:
        prompt = event.prompt_queued.prompt
        self.status.queued[prompt.id] = prompt
        yield from ()

    def _prompt_sent(self, event: "Event") -> Iterator[Entry]:
        self.status.sent.add(event.prompt_sent.prompt_id)
        yield from ()

    def _prompt_received(self, event: "Event") -> Iterator[Entry]:
        prompt = self.status.queued.pop(event.prompt_received.prompt_id, None)
        self.status.sent.discard(event.prompt_received.prompt_id)
        if prompt is not None:
            yield self._add(self._prompt_entry(event.seq, prompt))

    def _prompt_withdrawn(self, event: "Event") -> Iterator[Entry]:
        prompt = event.prompt_withdrawn.prompt
        queued = self.status.queued
        # An agent that returned it unread has changed its id.
        same = [
            id_
            for id_, each in queued.items()
            if id_ == prompt.id or (each.create_time, each.text) == (prompt.create_time, prompt.text)
        ]
        for id_ in same:
            del queued[id_]
        yield self._add(Note(event.seq, tuple(summary_spans(event))))

    def _prompt_entry(self, seq: int, prompt: "Prompt") -> Said:
        return Said(seq, prompt.text.strip("\n"), prompt_note(prompt, self._names))

    def _assistant_message(self, event: "Event") -> Iterator[Entry]:
        message = event.assistant_message
        depth = 1 if message.parent_tool_use_id else 0
        if not depth:
            self.status.text = self.status.thinking = ""
        for block in message.blocks:
            match block.WhichOneof("block"):
                case "text" if block.text.strip():
                    self._spoke |= not depth
                    yield self._add(Words(event.seq, block.text.strip("\n"), depth=depth))
                case "thinking" if block.thinking.strip():
                    yield self._add(Words(event.seq, block.thinking.strip("\n"), thinking=True, depth=depth))
                case "tool_call":
                    call = Call(event.seq, block.tool_call, depth=depth)
                    asked = self._asked_before(block.tool_call.tool_use_id)
                    if asked is not None:
                        call.request = asked.request
                        self._asked[asked.request.id] = call
                        self.entries.remove(asked)
                    self._calls[block.tool_call.tool_use_id] = call
                    yield self._add(call)
                case _:
                    continue
        if message.error and not any(block.text.strip() for block in message.blocks):
            yield self._add(Note(event.seq, ((f"! {message.error.replace('_', ' ')}", "red"),)))

    def _asked_before(self, tool_use_id: str) -> Asked | None:
        """Return the request of a call if its event came before that of the call."""
        return next(
            (
                each
                for each in self._asked.values()
                if isinstance(each, Asked) and tool_use_id and each.request.tool_use_id == tool_use_id
            ),
            None,
        )

    def _user_message(self, event: "Event") -> Iterator[Entry]:
        for result in event.user_message.results:
            call = self._calls.pop(result.tool_use_id, None)
            if call is not None:
                call.result = result
                yield call

    def _turn_ended(self, event: "Event") -> Iterator[Entry]:
        status, turn = self.status, event.turn_ended
        status.in_turn, status.text, status.thinking, status.since = False, "", "", seconds_of(event.time)
        yield from self._cut_off()
        if turn.text.strip() and not turn.is_error and not self._spoke:
            yield self._add(Words(event.seq, turn.text.strip("\n")))
        yield self._add(Ended(event.seq, turn, said=self._says(turn.text)))
        self._spoke = False

    def _cut_off(self) -> Iterator[Entry]:
        for call in self._calls.values():
            call.cut_off = True
            yield call
        self._calls.clear()

    def _says(self, text: str) -> bool:
        """Return whether the newest message is ``text``."""
        last = next((each for each in reversed(self.entries) if isinstance(each, Words)), None)
        return last is not None and bool(text.strip()) and " ".join(last.text.split()) == " ".join(text.split())

    def _checkpoint_made(self, event: "Event") -> Iterator[Entry]:
        made = event.checkpoint_made.checkpoint
        last = next((each for each in reversed(self.entries) if isinstance(each, Ended)), None)
        match enum_name(made, "reason"):
            case "start":
                return
            case "turn" if last is not None and last.checkpoint is None:
                last.checkpoint = made
                yield last
            case reason:
                yield self._add(Note(event.seq, ((f"{checkpoint_words(made)} ({reason})", "dim"),)))

    def _state_changed(self, event: "Event") -> Iterator[Entry]:
        change, status = event.state_changed, self.status
        new, old = enum_name(change, "new_state") or "", enum_name(change, "old_state") or ""
        known, status.state, status.reason = status.reason, new, change.reason
        if not status.in_turn:
            status.since = seconds_of(event.time)
        last = self.entries[-1] if self.entries else None
        if isinstance(last, Ended) and not last.over and new == "paused":
            last.held = True
        if isinstance(last, Ended) and (change.reason == "interrupted" or _says_the_same(change, last.turn)):
            return
        if _is_shown_elsewhere(change):
            return
        if old == "lost" and new == "queued":
            yield self._add(Note(event.seq, (("restarting", "dim"),)))
            return
        if change.reason and (change.reason == known or (new == "lost" and _shows(last, change.reason))):
            return
        reason = f": {one_line(change.reason)}" if change.reason else ""
        style = {"failed": "red", "lost": "red", "paused": "yellow"}.get(new, "dim")
        verb = "resumed" if old in HELD and new in {"idle", "queued"} and not reason else new
        yield self._add(Note(event.seq, (("■ " if new in HELD else "", style), (f"{verb}{reason}", style))))

    def _request_opened(self, event: "Event") -> Iterator[Entry]:
        request = event.request_opened.request
        if kind_name(request) == "review":
            return  # the turn's end shows it
        call = self._calls.get(request.tool_use_id)
        if call is None:
            call = next(
                (each for each in self.entries[-50:] if isinstance(each, Asked) and each.request.id == request.id), None
            )  # type: ignore[assignment]
        if isinstance(call, Call | Asked):
            call.request = request
            self._asked[request.id] = call
            yield call
            return
        asked = Asked(event.seq, request)
        self._asked[request.id] = asked
        yield self._add(asked)

    def _request_closed(self, event: "Event") -> Iterator[Entry]:
        request = event.request_closed.request
        entry = self._asked.pop(request.id, None)
        if entry is not None:
            entry.request = request
            yield entry

    def _api_retry(self, event: "Event") -> Iterator[Entry]:
        last = self.entries[-1] if self.entries else None
        if isinstance(last, Retries):
            last.retry = event.api_retry
            yield last
        else:
            yield self._add(Retries(event.seq, event.api_retry))

    def _rate_limit(self, event: "Event") -> Iterator[Entry]:
        limit = event.rate_limit
        if limit.status == "allowed" or limit.status + limit.kind == self._limit:
            return
        self._limit = limit.status + limit.kind
        name = limit.kind.replace("_", " ") + " usage limit" if limit.kind else "usage limit"
        until = f"; it resets at {local_time(limit.reset_time)[:16]}" if limit.reset_time.seconds else ""
        if limit.status == "rejected":
            yield self._add(Note(event.seq, ((f"⚠ {name} reached{until}", "yellow"),)))
        else:
            used = f"{limit.utilization:.0%} of the {name} is used" if limit.utilization else f"{name} nearly reached"
            yield self._add(Note(event.seq, ((f"⚠ {used}{until}", "yellow"),)))

    def _background_task(self, event: "Event") -> Iterator[Entry]:
        task = event.background_task
        if task.status == "list":
            self.status.background = task.running
            return
        call = self._calls.get(task.tool_use_id)
        if call is not None and task.output_file:
            call.output_file = task.output_file
        if task.foreground:
            self._foreground.add(task.task_id)
        if task.task_id in self._foreground:
            return  # the call shows it all
        if task.status == "progress" or (task.status == "completed" and not task.description):
            return
        style = "red" if task.status == "failed" else "dim"
        yield self._add(Note(event.seq, ((f"⧉ {background_words(task)}", style),)))

    def _agent_exited(self, event: "Event") -> Iterator[Entry]:
        exited = event.agent_exited
        self.status.in_turn, self.status.text, self.status.thinking = False, "", ""
        yield from self._cut_off()
        if exited.stop_intent or exited.exit_status == "code 0":
            return
        yield self._add(Note(event.seq, (("■ ", "red"), *summary_spans(event))))

    def _command_started(self, event: "Event") -> Iterator[Entry]:
        command = event.command_started.command
        self._commands[command.id] = ran = Ran(event.seq, command)
        yield self._add(ran)

    def _command_output(self, event: "Event") -> Iterator[Entry]:
        ran = self._commands.get(event.command_output.command_id)
        if ran is not None:
            text = ran.output + event.command_output.text
            ran.lines_before += text[:-OUTPUT_KEPT].count("\n")
            ran.output = text[-OUTPUT_KEPT:]
            yield ran

    def _command_ended(self, event: "Event") -> Iterator[Entry]:
        command = event.command_ended.command
        ran = self._commands.pop(command.id, None)
        if ran is None:
            yield from self._other(event)
            return
        ran.command, ran.ended = command, True
        yield ran

    def _session_updated(self, event: "Event") -> Iterator[Entry]:
        updated = event.session_updated
        fields = [each for each in updated.fields if each not in SILENT_FIELDS]
        if fields:
            changes = ", ".join(field_words(updated.session, each) for each in fields)
            yield self._add(Note(event.seq, ((changes, "dim"),)))

    def _setup_changed(self, event: "Event") -> Iterator[Entry]:
        if enum_name(event.setup_changed, "state") in {"failed", "untrusted"}:
            yield from self._other(event)

    def _conflict_changed(self, event: "Event") -> Iterator[Entry]:
        change = event.conflict_changed
        if change.conflict.red or was_red(change):
            yield from self._other(event)

    def _session_archived(self, event: "Event") -> Iterator[Entry]:
        yield self._add(Note(event.seq, (("archived", "yellow"),)))


def _says_the_same(change: "StateChanged", turn: "TurnEnded") -> bool:
    """Return whether the end of a failed turn has shown the reason of the session's state."""
    reason, text = " ".join(change.reason.split()), " ".join(turn.text.split())
    return bool(reason) and turn.is_error and (reason in text or text.startswith(reason.rstrip("…")))


def _shows(entry: Entry | None, reason: str) -> bool:
    """Return whether the entry is a note that contains the reason."""
    return isinstance(entry, Note) and reason in "".join(text for text, _ in entry.spans)


def _is_shown_elsewhere(change: "StateChanged") -> bool:
    """Return whether other entries show the change: prompts, turns and requests lead to these
    states."""
    new, old = enum_name(change, "new_state"), enum_name(change, "old_state")
    if new == "waiting" or new == "archived" or old == "archived":
        return True
    return not change.reason and (new in {"queued", "starting", "working"} or (new == "idle" and old not in HELD))


def prompt_note(prompt: "Prompt", names: Mapping[str, str]) -> str:
    """Return who wrote a prompt; for one of the person, the number of its images."""
    match prompt.source.partition(":"):
        case ("session", _, sender):
            return f"from {names.get(sender, sender)}"
        case ("daemon", _, _):
            return "from the daemon"
        case _:
            return f"with {plural(prompt.images, 'image')}" if prompt.images else ""


def checkpoint_words(made: "Checkpoint") -> str:
    return f"checkpoint {made.number}" + (f", {plural(made.files, 'file')}" if made.files else "")


def field_words(session: "Session", name: str) -> str:
    """Describe a changed field of a session, with its value if it is short."""
    value = getattr(session, name, "")
    match name:
        case "mode":
            return f"mode: {mode_name(session.mode)}"
        case "name":
            return f"renamed to {session.name}"
        case "budget_usd":
            return f"budget: {money(session.budget_usd)}"
        case "budget_tokens":
            return f"budget: {tokens(session.budget_tokens)}"
        case _ if isinstance(value, str | int | float) and value != "":
            return f"{name.replace('_', ' ')}: {value}"
        case _:
            return f"{name.replace('_', ' ')} changed"


# ── lines ─────────────────────────────────────────────────────────────────────────────────────────


def entry_lines(entry: Entry, look: Look, conversation: Conversation) -> list[Line]:
    """Return the lines of an entry in its present state."""
    return [each for part in entry_parts(entry, look, conversation) for each in part]


def entry_parts(entry: Entry, look: Look, conversation: Conversation, *, asked: bool = False) -> list[list[Line]]:
    """Return an entry in parts that do not change once they exist: the call, its request, the
    decision, the result.

    ``asked``: its request was shown while it was open, so it is repeated, and what it showed is not
    shown again.
    """
    match entry:
        case Said():
            return [_said_lines(entry, look)]
        case Words():
            return [_words_lines(entry, look)]
        case Call():
            return _call_parts(entry, look, conversation, asked=asked)
        case Asked():
            parts = [list(_asked_lines(entry.request))] if entry.waits or asked else []
            return [*parts, *([_decision_lines(entry.request)] if not entry.waits else [])]
        case Ended():
            return [[_ended_line(entry)]]
        case Retries():
            return [[line((retry_words(entry.retry, over=entry.over), "yellow"), hang=2)]]
        case Ran():
            return _ran_parts(entry, look)
        case Note():
            return [[Line(entry.spans, hang=2)]]
        case _:
            return []


def _marked(mark: str, style: str, lines: "list[Line]", depth: int = 0) -> list[Line]:
    """Return lines with a mark before the first one, all others indented."""
    pad = len(mark)
    return [
        Line((((mark if index == 0 else " " * pad), style), *((" " * each.indent, ""),), *each.spans), depth * 2, pad + each.hang)
        for index, each in enumerate(lines)
    ]  # fmt: skip


def _plain(text: str, style: str) -> list[Line]:
    return [line((part, style)) for part in text.split("\n")]


def _folded(lines: list[Line], most: int, look: Look) -> list[Line]:
    """Return the first lines, and a count of the others."""
    if not look.folded or len(lines) <= most + 1:
        return lines
    return [*lines[:most], line((f"… {plural(len(lines) - most, 'more line')}", "dim"))]


def _said_lines(entry: Said, look: Look) -> list[Line]:
    lines = _plain(entry.text, "bold")
    if entry.note == "from the daemon":
        lines = _folded(lines, COMMAND_LINES, look)
    if entry.note:
        lines[0] = Line((*lines[0].spans, (f"  ({entry.note})", "dim")))
    return _marked("› ", "bold", lines)


def _words_lines(entry: Words, look: Look) -> list[Line]:
    if entry.thinking:
        return _marked("∴ ", "dim", _folded(_plain(entry.text, "dim italic"), THOUGHT_LINES, look), entry.depth)
    if look.width is None:
        return _marked("● ", "cyan", _plain(entry.text, ""), entry.depth)
    return _marked("● ", "cyan", markdown_lines(entry.text, look.width - 2 - entry.depth * 2), entry.depth)


def _call_parts(entry: Call, look: Look, conversation: Conversation, *, asked: bool) -> list[list[Line]]:
    call, request = entry.call, entry.request
    if request is not None and kind_name(request) in {"question", "plan"}:
        shown = list(_asked_lines(request)) if entry.waits or asked else _asked_before_lines(request, look)
        return [shown, *([_decision_lines(request)] if not is_open(request) else [])]
    folds_whole = call.tool in COUNTED or call.tool.startswith(OWN)
    if folds_whole and not entry.settled and request is None:
        return []  # one line, once its count or its answer is known
    parts = [_head_lines(entry, look, conversation)]
    if request is not None and (entry.waits or asked):
        parts.append(list(_permission_lines(entry, conversation.worktree)))
    withdrawn = request is not None and request.resolution.WhichOneof("decision") is None and entry.settled
    if request is not None and not is_open(request) and not withdrawn:
        parts.append(_decision_lines(request))
    if entry.settled:
        parts.append(_result_lines(entry, look, conversation, asked=asked))
    return [[_deeper(each, entry.depth) for each in part] for part in parts]


def _deeper(item: Line, depth: int) -> Line:
    return Line(item.spans, item.indent + depth * 2, item.hang)


def _head_lines(entry: Call, look: Look, conversation: Conversation) -> list[Line]:
    """Return the call in one line; in full if it is a command that waits for approval."""
    call, result = entry.call, entry.result
    verb, detail = words(call, result, conversation.worktree)
    suffix = ""
    if result is not None and (count := counted(call, result)):
        suffix = f" · {count}"
    elif result is not None and result.HasField("edit"):
        suffix = f" · {edit_counts(result.edit)}"
    elif entry.waits and entry.request is not None and entry.request.HasField("edit"):
        suffix = f" · {edit_counts(entry.request.edit)}"
    first, *rest = detail.strip("\n").split("\n")
    if look.folded and entry.request is None and len(rest) > COMMAND_LINES:
        rest = [*rest[:COMMAND_LINES], f"… {plural(len(rest) - COMMAND_LINES, 'more line')}"]
    if look.folded and call.tool not in {"Bash"}:
        first, rest = truncated(" ".join([first, *rest]), 300), []
    head: list[Span] = [("▸ ", "cyan"), (verb, "bold cyan"), (" " if verb and first else "", ""), (first, "")]
    lines = [line(*head, (suffix, "dim"), hang=2), *(line((each, ""), indent=2, hang=2) for each in rest)]
    marks = {"completed": "☒ ", "in_progress": "▶ "}
    for state, text in todos(call):
        lines.append(line((marks.get(state, "☐ ") + text, "dim" if state == "completed" else ""), indent=4, hang=2))
    return lines


def _permission_lines(entry: Call, worktree: str) -> Iterator[Line]:
    """Return the request below its call: what the call does not show, the reason, and the commands
    that answer."""
    request = entry.request
    assert request is not None
    if request.HasField("edit"):
        yield from requested_edit_lines(request)
    else:
        shown = frozenset({"command", "description"}) if entry.call.tool == "Bash" else frozenset()
        yield from (Line(each.spans, each.indent + 2, each.hang) for each in body_lines(request, omit=shown))
    bash = entry.call.tool == "Bash"
    why = [_description(entry.call)] if bash else []
    if (given := request.reason.strip()) not in why and (bash or given not in entry.call.input_json):
        why.append(given)
    reason = "".join(f"  {one_line(each)}" for each in why if each)
    yield line(("? ", "bold yellow"), ("waits for you", "bold yellow"), (reason, "dim"), indent=2, hang=2)
    yield from answer_lines(request)


def _description(call: "ToolCall") -> str:
    data = parsed(call.input_json)
    value = data.get("description") if isinstance(data, Mapping) else None
    return value if isinstance(value, str) else ""


def _asked_lines(request: "AttentionRequest") -> Iterator[Line]:
    yield line(("? ", "bold yellow"), (title(request), "bold yellow"))
    yield from body_lines(request)
    yield from answer_lines(request)


def _asked_before_lines(request: "AttentionRequest", look: Look) -> list[Line]:
    """Return an answered question or plan, without its choices and the command that answers."""
    asked = questions(parsed(request.input_json)) if kind_name(request) == "question" else []
    if asked:
        texts = [str(each.get("question", "")) for each in asked]
        return [line(("? ", "bold yellow"), (text, "bold"), hang=2) for text in texts]
    body = _folded(list(body_lines(request)), COMMAND_LINES, look)
    return [line(("? ", "bold yellow"), (title(request), "bold yellow")), *body]


def _decision_lines(request: "AttentionRequest") -> list[Line]:
    mark, style = {"approve": ("✓", "green"), "reply": ("✓", "green"), "deny": ("✗", "yellow")}.get(
        request.resolution.WhichOneof("decision") or "", ("○", "dim")
    )
    return _marked(f"{mark} ", style, _plain(shown_decision(request, owner="you"), style), depth=1)


def _result_lines(entry: Call, look: Look, conversation: Conversation, *, asked: bool) -> list[Line]:
    call, result, request = entry.call, entry.result, entry.request
    if result is None:
        return []
    denied = request is not None and request.resolution.WhichOneof("decision") == "deny"
    if (result.is_error and (denied or result.text.startswith(REFUSED))) or (
        look.folded and result.text.startswith(BACKGROUND)
    ):
        return []  # the decision above, or the note or the end of the turn below, shows it
    if result.HasField("edit") and not result.is_error:
        if asked and request is not None and request.edit.patch == result.edit.patch:
            return []
        most = None if not look.folded else NEW_FILE_LINES if result.edit.creates else EDIT_LINES
        return list(edit_lines(result.edit, most=most))
    quiet = counted(call, result) or call.tool == "TodoWrite" or call.tool.startswith(OWN)
    if quiet and not result.is_error and (look.folded or call.tool == "TodoWrite"):
        return []
    texts = result_texts(NO_OUTPUT.sub("(no output)", result.text), conversation.worktree)
    end: list[Line] = []
    if result.is_error and texts and (code := EXIT_CODE.fullmatch(texts[0])):
        texts, end = texts[1:], [line((f"✗ exit code {code[1]}", "red"), indent=2)]
    style = "red" if result.is_error and not end else "dim"
    if not texts:
        return end or ([line(("failed without output", "red"), indent=2)] if result.is_error else [])
    return [*_output_lines(texts, style, look, last=call.tool == "Bash", cut=result.truncated), *end]


def _output_lines(
    texts: list[str], style: str, look: Look, *, last: bool, cut: bool = False, before: int = 0
) -> list[Line]:
    """Lines of an output: folded to the last or the first few, with the count of the others."""
    left_out = before
    if look.folded and len(texts) > RESULT_LINES + 1:
        left_out += len(texts) - RESULT_LINES
        texts = texts[-RESULT_LINES:] if last else texts[:RESULT_LINES]
    lines = [line((each, style), indent=2, hang=2) for each in texts]
    if left_out and last:
        lines.insert(0, line((f"… {plural(left_out, 'line')} above", "dim"), indent=2))
    elif left_out or cut:
        lines.append(line((f"… {plural(left_out, 'more line') if left_out else 'more'}", "dim"), indent=2))
    return lines


def _ended_line(entry: Ended) -> Line:
    turn = entry.turn
    facts = [duration(turn.duration.seconds + turn.duration.nanos / 1e9)]
    if turn.cost_usd:
        facts.append(money(turn.cost_usd))
    if entry.checkpoint is not None:
        facts.append(checkpoint_words(entry.checkpoint))
    suffix = " · ".join(facts)
    if turn.is_error and turn.terminal_reason.startswith("aborted"):
        by = "" if entry.held else " by you"
        return line((f"■ interrupted{by}", "yellow"), (f"  {suffix}", "dim"), hang=2)
    if turn.is_error:
        why = "" if entry.said else one_line(turn.text) or turn.terminal_reason or turn.subtype
        return line((f"✗ turn failed{f': {why}' if why else ''}", "red"), (f"  {suffix}", "dim"), hang=2)
    return line(("✓ ", "green"), (suffix, "dim"), hang=2)


def _ran_parts(entry: Ran, look: Look) -> list[list[Line]]:
    command = entry.command
    kind = enum_name(command, "kind") or "command"
    parts = [[line(("▸ ", "cyan"), (kind, "bold cyan"), (f" {one_line(command_title(command))}", ""), hang=2)]]
    if not entry.ended:
        return parts
    texts = result_texts(entry.output, "")
    lines = _output_lines(texts, "dim", look, last=True, before=entry.lines_before) if texts else []
    failed = not command.stop_reason and exit_code(command) != 0
    if failed or command.stop_reason:
        lines.append(line((how_it_ended(command), "red" if failed else "dim"), indent=2))
    return [*parts, lines] if lines else parts


def last_words(conversation: Conversation, look: Look) -> list[Line]:
    """Return the beginning of the agent's last message, unless its turn failed."""
    for entry in reversed(conversation.entries):
        if isinstance(entry, Ended) and entry.turn.is_error:
            return []
        if isinstance(entry, Words) and not entry.thinking and not entry.depth:
            return message_lines(entry.text, look)
    return []


def message_lines(text: str, look: Look) -> list[Line]:
    """Return the beginning of a message of the agent."""
    return _folded(_words_lines(Words(0, text), look), LAST_WORDS, look) if text else []
