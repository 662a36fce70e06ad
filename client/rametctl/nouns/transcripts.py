"""Read conversations from the daemon, and print them live."""

import os
import shlex
import stat
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING
from weakref import WeakSet

from ramet.words import plural

from rametctl.console.lines import Line, Look, Span, line, truncated
from rametctl.render.calls import result_texts, words
from rametctl.render.event import retry_words
from rametctl.render.format import duration, seconds_of, unbold
from rametctl.render.transcript import (
    Asked,
    Call,
    Conversation,
    Ended,
    Entry,
    Ran,
    Retries,
    Said,
    Words,
    entry_parts,
)

if TYPE_CHECKING:
    from ramet.v1.event_pb2 import Event
    from ramet.v1.session_pb2 import Session

    from rametctl.app import App
    from rametctl.console.output import Foot, Output

END_OF_LOG = 20
"""Newest events among which the end of a turn that just ended is searched first."""
PAGE = 300
MOST = 1000
"""Events that the daemon gives in one answer."""
PATIENCE = 1.0
"""Seconds for which the end of a turn waits for its checkpoint, to be printed with it."""
TAIL_BYTES = 4096
STREAMED_LINES = 12
OUTPUT_LINES = 5
QUEUED_LINES = 3
SHOWN_AT_WORK = 5
"""Sessions at work that the foot names."""
DETACHED_TOOLS = frozenset({"Task", "Agent"})
"""Tools that run a subagent: its entries are shown below the call, before the result."""
TAGS = ("cyan", "magenta", "blue", "yellow", "green")


def read_turns(app: "App", session: "Session", turns: int | None) -> "tuple[list[Event], int]":
    """Read the events of the newest ``turns`` turns, all events for None. Return them, and the
    number of the last one."""
    events: list[Event] = []
    for events, complete in _newest_events(app, session, (PAGE, MOST) if turns is not None else ()):
        if complete:
            break
        conversation = Conversation()
        for event in events:
            conversation.add(event)
        if conversation.contains_turns(turns or 1):
            break
    return events, events[-1].seq if events else 0


def read_reply(app: "App", session: "Session", prompt_id: str) -> Conversation:
    """Read a session's newest events up to the end of the turn that got a prompt, or all of them if
    that turn has not ended. "" is the session's first prompt."""

    def received(event: "Event") -> bool:
        return event.HasField("prompt_received") and prompt_id in {"", event.prompt_received.prompt_id}

    events: list[Event] = []
    for events, _ in _newest_events(app, session, (END_OF_LOG, PAGE, MOST)):
        if prompt_id and any(map(received, events)):
            break
    conversation, found = Conversation(worktree=session.worktree), False
    for event in events:
        conversation.add(event)
        found = found or received(event)
        if found and event.HasField("turn_ended"):
            break
    return conversation


def _newest_events(app: "App", session: "Session", counts: Iterable[int]) -> "Iterator[tuple[list[Event], bool]]":
    """Yield the newest events of a session: as many as each of ``counts`` says, and finally all;
    each time with whether they are all."""
    from ramet.v1 import event_pb2

    for count in counts:
        request = event_pb2.ListEventsRequest(session=session.id, page_size=count, newest=True, omit_partials=True)
        page = app.call(lambda daemon: daemon.events.ListEvents, request)
        complete = len(page.events) < count and not page.next_page_token
        yield list(page.events), complete
        if complete:
            return
    every: list[Event] = []
    request = event_pb2.ListEventsRequest(session=session.id, omit_partials=True)
    for page in app.connection.pages(lambda daemon: daemon.events.ListEvents, request):
        every += page.events
    yield every, True


class Printer:
    """Prints the conversations of one or several sessions, each entry once: complete, or the parts
    that no longer change.

    A ``foot`` (on a terminal) shows unsettled entries. Without one, a call is printed when it
    begins. ``several``: print the session's name whenever the speaker changes.
    """

    def __init__(
        self, output: "Output", names: dict[str, str], *, several: bool, folded: bool = True, foot: "Foot | None" = None
    ) -> None:
        self.names = names
        self.conversations: dict[str, Conversation] = {}
        self._output = output
        self._look = output.look(folded=folded)
        self._folded = folded
        self._several = several
        self._foot = foot
        self._waiting: dict[str, deque[Entry]] = {}
        self._printed: dict[Entry, int] = {}
        self._done: WeakSet[Entry] = WeakSet()
        self._asked: set[Entry] = set()
        self._detached: dict[str, list[Entry]] = {}
        self._above: list[Line] = []
        self._speaker = ""
        self._begun = False
        """Whether a speaker's name was printed."""
        self._last: Entry | None = None
        self._ended = 0.0
        """When a turn ended whose checkpoint does not exist yet."""

    def conversation(self, session_id: str, worktree: str = "") -> Conversation:
        found = self.conversations.get(session_id)
        if found is None:
            found = self.conversations[session_id] = Conversation(worktree=worktree, names=self.names)
        return found

    def begin(self, session_id: str, entries: Iterable[Entry]) -> None:
        """Print entries that were read, all but those that are not settled."""
        self._waiting.setdefault(session_id, deque()).extend(entries)
        self._flush(session_id)

    def say(self, *lines: Line) -> None:
        """Print lines of no session at the next `draw`."""
        self._above += lines
        self._speaker = ""

    def add(self, event: "Event") -> None:
        """Process an event; entries that it settles are printed at the next `draw`."""
        conversation = self.conversation(event.session_id)
        waiting = self._waiting.setdefault(event.session_id, deque())
        known = {*waiting, *self._detached.get(event.session_id, ())}
        for entry in conversation.add(event):
            if entry not in known and entry not in self._printed and entry not in self._done:
                waiting.append(entry)
            if isinstance(entry, Ended) and not entry.settled:
                self._ended = time.monotonic()
        self._flush(event.session_id)

    def draw(self) -> None:
        """Print the settled entries, and draw the foot."""
        self._output_width_changed()
        if self._ended and time.monotonic() - self._ended > PATIENCE:
            self.finish()
        above, self._above = self._above, []
        if self._foot is not None:
            self._foot.draw(above, self._foot_lines())
        elif above:
            self._output.show(*above)

    def finish(self) -> None:
        """Print the ends of turns without waiting for their checkpoints."""
        self._ended = 0.0
        for session_id, waiting in self._waiting.items():
            for entry in waiting:
                if isinstance(entry, Ended):
                    entry.over = True
            self._flush(session_id)

    def leave(self) -> None:
        """Print the unsettled entries, and leave a clean line."""
        self.finish()
        for session_id, waiting in self._waiting.items():
            for entry in waiting:
                self._print(session_id, entry, self.conversation(session_id))
        above, self._above = self._above, []
        if self._foot is not None:
            self._foot.draw(above, ())
            self._foot.close()
        else:
            self._output.show(*above)

    def _output_width_changed(self) -> None:
        self._look = self._output.look(folded=self._folded)

    # Printing

    def _flush(self, session_id: str) -> None:
        conversation = self.conversation(session_id)
        detached = self._detached.setdefault(session_id, [])
        for entry in detached[:]:
            self._print(session_id, entry, conversation)
            if entry.settled:
                detached.remove(entry)
                self._forget(entry)
        waiting = self._waiting[session_id]
        while waiting:
            entry = waiting[0]
            if entry.settled:
                self._print(session_id, entry, conversation)
                self._forget(entry)
            elif isinstance(entry, Asked | Call) and entry.waits:
                self._asked.add(entry)
                self._print(session_id, entry, conversation)
                detached.append(entry)
            elif isinstance(entry, Call) and entry.call.tool in DETACHED_TOOLS:
                self._print(session_id, entry, conversation)
                detached.append(entry)
            else:
                if self._foot is None and not self._several and isinstance(entry, Call | Ran):
                    self._print(session_id, entry, conversation)
                return
            waiting.popleft()

    def _forget(self, entry: Entry) -> None:
        self._printed.pop(entry, None)
        self._asked.discard(entry)
        self._done.add(entry)

    def _print(self, session_id: str, entry: Entry, conversation: Conversation) -> None:
        """Print the new parts of an entry, below its first line if other entries were printed in
        between."""
        parts = entry_parts(entry, self._look, conversation, asked=entry in self._asked)
        before = self._printed.get(entry, 0)
        fresh = [each for part in parts[before:] for each in part]
        self._printed[entry] = len(parts)
        if not fresh:
            return
        if self._several and session_id != self._speaker:
            if self._begun:
                self._above.append(line(""))
            self._above.append(self._tag(session_id))
            self._begun = True
            self._speaker, self._last = session_id, None
        if before and self._last is not entry and parts[0]:
            fresh.insert(0, dimmed(parts[0][0]))
        elif not before and self._last is not None and begins_paragraph(entry, self._last):
            self._above.append(line(""))
        self._above += fresh
        self._last = entry

    def _tag(self, session_id: str) -> Line:
        name = self.names.get(session_id, session_id)
        return line((truncated(name, 30), f"bold {TAGS[sum(name.encode()) % len(TAGS)]}"))

    # The foot

    def _foot_lines(self) -> list[Line]:
        if self._several:
            return self._foot_of_several()
        lines: list[Line] = []
        for session_id, conversation in self.conversations.items():
            lines += self._unsettled(session_id, conversation)
            lines.append(self._status(session_id, conversation))
        return lines

    def _unsettled(self, session_id: str, conversation: Conversation) -> list[Line]:
        """Return the present activity: streamed words, calls, commands with their last lines,
        queued prompts."""
        lines: list[Line] = []
        status = conversation.status
        under_way = [*self._detached.get(session_id, ()), *self._waiting.get(session_id, ())]
        for entry in [each for each in under_way if not getattr(each, "waits", False)][:SHOWN_AT_WORK]:
            if isinstance(entry, Call) and not entry.settled:
                verb, detail = words(entry.call, entry.result, conversation.worktree)
                first = truncated(detail, 200)
                lines.append(line(("▸ ", "cyan"), (verb, "bold cyan"), (f" {first}" if verb else first, "")))
                texts = result_texts(tail_of(entry.output_file), "")[-OUTPUT_LINES:]
                lines += [line((each, "dim"), indent=2) for each in texts]
            elif isinstance(entry, Ran):
                lines += [each for part in entry_parts(entry, self._look, conversation) for each in part]
                texts = result_texts(entry.output, "")[-OUTPUT_LINES:]
                lines += [line((each, "dim"), indent=2) for each in texts]
            elif isinstance(entry, Retries):
                lines.append(line((retry_words(entry.retry), "yellow")))
        if status.text.strip():
            lines += self._streamed(status.text)
        elif status.thinking.strip():
            lines.append(line(("∴ ", "dim"), (truncated(status.thinking[-300:], 200), "dim italic")))
        for prompt in list(status.queued.values())[:QUEUED_LINES]:
            ago = f"  (queued {elapsed(seconds_of(prompt.create_time))})" if prompt.create_time.seconds else ""
            lines.append(line(("› ", "dim"), (truncated(prompt.text, 200), "dim"), (ago, "dim")))
        return lines

    def _streamed(self, text: str) -> list[Line]:
        """Return the end of a streamed message."""
        from rametctl.console.lines import wrapped

        room = min(STREAMED_LINES, max(self._output.height // 2, 3))
        tail = text.strip("\n").split("\n")[-room:]
        pieces = [piece for part in tail for piece in wrapped(line(part), self._output.width - 3)][-room:]
        return [Line(((("● " if index == 0 else "  "), "cyan"), *piece.spans)) for index, piece in enumerate(pieces)]

    def _status(self, session_id: str, conversation: Conversation) -> Line:
        status = conversation.status
        name = self.names.get(session_id, session_id)
        spans: list[Span] = []
        took = elapsed(status.since)
        waits = [each for each in self._detached.get(session_id, ()) if isinstance(each, Asked | Call) and each.waits]
        if waits:
            asked = waits[0].request
            took = elapsed(seconds_of(asked.create_time)) if asked is not None and asked.create_time.seconds else took
            spans += [("waits for you", "bold yellow"), (f" {took}", "dim")]
        elif status.in_turn:
            tokens = f" · {count_words(status.written)} tokens" if status.written else ""
            doing = " thinking" if status.thinking and not status.text else " working"
            spans += [(doing.strip(), "green"), (f" {took}{tokens}", "dim")]
            spans.append((f" · interrupt: rametctl interrupt {shlex.quote(name)}", "dim"))
        else:
            reason = f": {status.reason}" if status.reason else ""
            state = "idle" if status.state in {"", "working", "waiting"} else status.state
            spans += [(f"{state}{reason}", "dim"), (f" {took}" if took else "", "dim")]
            if status.background:
                spans.append((f" · {status.background} in the background", "dim"))
        spans.append((" · Ctrl-C leaves", "dim"))
        return line(*spans)

    def _foot_of_several(self) -> list[Line]:
        open_ones = {
            key: sum(isinstance(each, Asked | Call) and each.waits for each in entries)
            for key, entries in self._detached.items()
        }
        waits = sum(open_ones.values())
        at_work = [
            (key, each) for key, each in self.conversations.items() if each.status.in_turn and not open_ones.get(key)
        ]
        lines = []
        for key, conversation in at_work[:SHOWN_AT_WORK]:
            status = conversation.status
            calls = conversation.running()
            verb, detail = words(calls[-1].call, None, conversation.worktree) if calls else ("", "")
            doing = f"▸ {verb} {detail}" if calls else f"● {status.text.strip()[-200:]}" if status.text.strip() else ""
            took = elapsed(status.since)
            name = self.names.get(key, key)
            lines.append(line((truncated(name, 24), "bold"), (f" {took} ", "dim"), (truncated(doing, 300), "dim")))
        facts = [f"{len(at_work)} working"] if at_work else []
        facts += [f"{waits} {'waits' if waits == 1 else 'wait'} for you: rametctl inbox"] if waits else []
        lines.append(line((" · ".join([*facts, "Ctrl-C leaves"]), "dim")))
        return lines


def begins_paragraph(entry: Entry, before: Entry) -> bool:
    """Return whether a blank line separates two entries."""
    if isinstance(entry, Said):
        return True
    return isinstance(entry, Words) and not entry.thinking and not isinstance(before, Said | Words)


def drawn(conversation: Conversation, entries: Sequence[Entry], look: Look) -> list[Line]:
    """Return all entries in their present state, and queued prompts."""
    lines: list[Line] = []
    before: Entry | None = None
    for entry in entries:
        parts = entry_parts(entry, look, conversation)
        fresh = [each for part in parts for each in part]
        if isinstance(entry, Call) and not entry.settled and not fresh:
            verb, detail = words(entry.call, None, conversation.worktree)
            fresh = [line(("▸ ", "cyan"), (verb, "bold cyan"), (f" {detail}".rstrip(), ""))]
        if not fresh:
            continue
        if before is not None and begins_paragraph(entry, before):
            lines.append(line(""))
        lines += fresh
        before = entry
    for prompt in conversation.status.queued.values():
        lines += [line(""), line(("› ", "dim"), (truncated(prompt.text, 300), "dim"), ("  (queued)", "dim"), hang=2)]
    return lines


def dimmed(item: Line) -> Line:
    return Line(tuple((text, "dim") for text, _ in item.spans), item.indent, item.hang)


def tail_of(file: str) -> str:
    """Return the end of a file that an agent writes; "" if it does not exist. Never block on a pipe
    or device."""
    if not file:
        return ""
    try:
        with os.fdopen(os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as output:
            status = os.fstat(output.fileno())
            if not stat.S_ISREG(status.st_mode):
                return ""
            output.seek(max(status.st_size - TAIL_BYTES, 0))
            return output.read(TAIL_BYTES).decode("utf-8", "replace")
    except (OSError, ValueError):
        return ""


def elapsed(since: float) -> str:
    """Whole seconds, minutes and hours since a time; "" where that is not known."""
    seconds = max(int(time.time() - since), 0)
    return (duration(seconds) if seconds >= 10 else f"{seconds}s") if since else ""


def count_words(tokens: int) -> str:
    return str(tokens) if tokens < 1000 else f"{tokens / 1000:.1f}k"


def resting_line(session: "Session") -> Line:
    """Describe an idle session in one line: its state and its last words."""
    from rametctl.render.session import state_name

    said = truncated(unbold(session.now), 300) if session.now else ""
    state = state_name(session)
    return line((truncated(session.name, 30), "bold"), (f"  {state}", ""), (f"  {said}" if said else "", "dim"), hang=2)


def count_line(sessions: "Sequence[Session]", *, waiting: bool) -> Line:
    """Count the sessions, and with ``waiting`` those that wait."""
    waits = sum(1 for each in sessions if each.attention) if waiting else 0
    text = plural(len(sessions), "session")
    if waits:
        return line(
            (text, "bold"),
            (f", {waits} {'waits' if waits == 1 else 'wait'} for you: ", ""),
            ("rametctl inbox", "green"),
        )
    return line((text, "bold"))
