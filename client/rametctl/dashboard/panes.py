"""Contents of the tabs on the right, about one session, as lines. Independent of Textual."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from ramet.jsonify import enum_name
from ramet.visible import visible
from ramet.words import plural

from rametctl.console.lines import Line, Look, Span, cell_width, line, truncated, wrapped
from rametctl.render.diff import changed_words, patch_style, stat_lines
from rametctl.render.format import age, duration
from rametctl.render.request import kind_name
from rametctl.render.rule import effect_name
from rametctl.render.session import details, state_name
from rametctl.render.transcript import Asked, Call, Conversation, Entry, Ran, Said, entry_lines

if TYPE_CHECKING:
    from ramet.v1.attention_pb2 import AttentionRequest, PermissionRule
    from ramet.v1.event_pb2 import Event
    from ramet.v1.plan_pb2 import GetPlanResponse
    from ramet.v1.session_pb2 import GetSessionResponse, Session
    from ramet.v1.terminal_pb2 import Command
    from ramet.v1.worktree_pb2 import Checkpoint, Comment, GetDiffResponse, ListConflictsResponse

TABS = ("Conversation", "Diff", "Requests", "Checkpoints", "Commands", "Conflicts", "Details")
CONTEST = "Contest"
"""The tab that only sessions of a contest have."""
AGAINST = ("base", "target", "turn")
OUTPUT_LINES = 10
"""Lines of a command's output in the tab Commands."""
SHOWN_ENTRIES = 600
"""Entries of a conversation that the dashboard stores and shows: the newest. `rametctl logs` has
all of them."""
DRAWN_AT_ONCE = 40
"""Most entries that one painting redraws."""
STREAMED = 4000
"""Characters of an unfinished message that are shown: the newest."""


def tabs_of(session: "Session") -> tuple[str, ...]:
    return (*TABS, CONTEST) if session.contest or session.judges else TABS


def tabs_line(name: str, chosen: str, width: int, tabs: Sequence[str] = TABS) -> Line:
    """Return the session's name and as many tabs around the chosen one as fit; ‹ and › mark the
    others."""
    first = last = tabs.index(chosen)
    name = truncated(name, max(width - len(chosen) - 5, 8))
    room = width - cell_width(name) - len(chosen) - 5
    while True:
        if last + 1 < len(tabs) and len(tabs[last + 1]) < room:
            last += 1
            room -= len(tabs[last]) + 1
        elif first > 0 and len(tabs[first - 1]) < room:
            first -= 1
            room -= len(tabs[first]) + 1
        else:
            break
    spans: list[Span] = [(name, "bold"), (" ‹" if first else " ", "dim")]
    for tab in tabs[first : last + 1]:
        spans += [(" ", ""), (tab, "reverse" if tab == chosen else "dim")]
    return line(*spans, (" ›" if last + 1 < len(tabs) else "", "dim"))


def fitting(keys: str, width: int) -> str:
    """Join as many keys by " · " as fit, at least the first."""
    shown = keys.split(" · ")
    while len(shown) > 1 and cell_width(" · ".join(shown)) > width:
        shown.pop()
    return " · ".join(shown)


def hint_lines(title: Span, hints: str, width: int) -> list[Line]:
    """Return a title and the keys after it; a line ends only between two keys."""
    rows: list[Line] = [line(title, ("  ", ""))]
    for hint in hints.split(" · "):
        last = rows[-1]
        between = " · " if last.spans and last.spans[-1][1] == "dim" else ""
        if cell_width(f"{last.text}{between}{hint}") > width:
            rows.append(Line(((hint, "dim"),), 2))
        else:
            rows[-1] = Line((*last.spans, (f"{between}{hint}", "dim")), last.indent)
    return [piece for each in rows for piece in wrapped(each, width)]


class Talk:
    """A conversation as lines for one width; redraws only entries that events changed."""

    def __init__(self, session: "Session", names: dict[str, str]) -> None:
        self.conversation = Conversation(worktree=session.worktree, names=names, most=SHOWN_ENTRIES)
        self.folded = True
        self.partial = False
        """Whether `lines` left out earlier entries; the next call has more of them."""
        self._drawn: dict[Entry, list[Line]] = {}
        self._width = 0

    def add(self, events: "Sequence[Event]") -> None:
        for event in events:
            for entry in self.conversation.add(event):
                self._drawn.pop(entry, None)

    def fold(self) -> None:
        self.folded = not self.folded
        self._drawn.clear()

    def lines(self, width: int) -> list[Line]:
        if width != self._width:
            self._width = width
            self._drawn.clear()
        found: list[Line] = []
        entries = self.conversation.entries
        # Draw a long conversation from its end, a part at each call, so that keys are answered
        # meanwhile.
        fresh = [entry for entry in entries if entry not in self._drawn]
        self.partial = len(fresh) > DRAWN_AT_ONCE
        later = set(fresh[:-DRAWN_AT_ONCE])
        for index, entry in enumerate(entries):
            if entry in later:
                continue
            drawn = self._drawn.get(entry)
            if drawn is None:
                look = Look(width, self.folded)
                drawn = [
                    piece for each in entry_lines(entry, look, self.conversation) for piece in wrapped(each, width)
                ]
                if isinstance(entry, Call | Asked) and entry.waits:
                    drawn = drawn[:1]  # the request is shown in full below the conversation
                self._drawn[entry] = drawn
            if index and isinstance(entry, Said):
                found.append(line(""))
            found += drawn
        if len(self._drawn) > 2 * SHOWN_ENTRIES:
            self._drawn = {entry: self._drawn[entry] for entry in entries if entry in self._drawn}
        return [*found, *self._streamed(width), *self._queued(width)]

    def _streamed(self, width: int) -> Iterator[Line]:
        status = self.conversation.status
        for text, style in ((status.thinking, "dim italic"), (status.text, "")):
            if text.strip():
                mark = "∴ " if style else "● "
                for index, part in enumerate(text[-STREAMED:].strip("\n").split("\n")):
                    yield from wrapped(line((mark if index == 0 else "  ", "cyan"), (part, style), hang=2), width)

    def _queued(self, width: int) -> Iterator[Line]:
        status = self.conversation.status
        for id_, prompt in status.queued.items():
            first = prompt.text.strip().split("\n")[0]
            note = "  (sent, not read yet)" if id_ in status.sent else "  (queued; U takes it back)"
            yield line((truncated(f"⋯ {first}", width - len(note)), "dim"), (note, "dim"))

    def status_line(self, session: "Session", now: float, width: int, key: str) -> Line:
        """Describe the running turn: activity, duration, tokens written, and the ``key`` that ends
        it."""
        status = self.conversation.status
        state = state_name(session)
        if state not in {"working", "starting", "waiting"}:
            reason = session.state_reason or (session.landed_reason if state == "idle" else "")
            return line((truncated(f"{state}{': ' + reason if reason else ''}", width), "dim"))
        running = [each for each in self.conversation.running() if each.request is None or not _asks(each.request)]
        what = running[-1].call.tool if running and state == "working" else state
        spans = [(f"{'?' if state == 'waiting' else '✻'} {what}", "yellow" if state == "waiting" else "green")]
        since = status.since if status.in_turn else session.since.seconds
        if since:
            spans.append((f" {duration(max(now - since, 0))}", "dim"))
        if status.written:
            spans.append((f" · ↓ {plural(status.written, 'token')}", "dim"))
        spans.append((f" · {key} interrupts", "dim"))
        return line(*spans)


def _asks(request: "AttentionRequest") -> bool:
    """Whether the call of a request only asks a person, and does nothing after the answer."""
    return kind_name(request) in {"question", "plan"}


@dataclass(frozen=True)
class Place:
    """The line of a row of a diff in the session's file; line 0 for the file itself."""

    path: str
    line: int


def diff_rows(
    answer: "GetDiffResponse", comments: "Sequence[Comment]", width: int
) -> tuple[list[Line], list[Place | None]]:
    """Return the files with their counts, then the patch with line numbers, and comments below
    their lines."""
    files = stat_lines(answer)
    lines = [*files[:-1], *(piece for each in files[-1:] for piece in wrapped(each, width))]
    places: list[Place | None] = [
        *(Place(each.path, 0) for each in answer.files),
        *[None] * (len(lines) - len(answer.files)),
    ]
    said: dict[Place, list[Comment]] = {}
    for comment in comments:
        said.setdefault(Place(comment.path, comment.current_line or comment.line), []).append(comment)
    path, number, in_hunk = "", 0, False
    texts = answer.patch.decode("utf-8", "replace").removesuffix("\n").split("\n") if answer.patch else []
    marked = changed_words(texts)
    for index, text in enumerate(texts):
        place: Place | None = None
        if text.startswith("diff --git "):
            in_hunk = False
            lines += [line(""), line((visible(_patched_file(text)), "bold"))]
            places += [None, None]
            continue
        if not in_hunk and text.startswith(("index ", "--- ", "+++ ")):
            path = text[4:].removeprefix("b/").rstrip("\t")  # of the last one
            continue
        if text.startswith("@@"):
            in_hunk = True
            number = _first_line(text)
        elif in_hunk and text[:1] in {" ", "+"}:
            place = Place(path, number)
            number += 1
        gutter = f"{place.line:>4} " if place else "     "
        spans = marked.get(index) or ((visible(text), patch_style(text)),)
        lines.append(line((gutter, "dim"), *spans))
        places.append(place)
        for comment in said.get(place, ()) if place else ():
            state = enum_name(comment, "state") or ""
            lines += wrapped(
                line(("     ✎ ", "magenta"), (comment.text, "magenta"), (f"  ({state})", "dim"), hang=7), width
            )
            places += [place] * (len(lines) - len(places))
    if answer.truncated:
        lines.append(line(("… cut off here; all of it: rametctl diff", "dim")))
        places.append(None)
    return lines, places


def _patched_file(header: str) -> str:
    """Return the file of a ``diff --git a/X b/X``; both names if they differ."""
    names = header.removeprefix("diff --git ")
    name = names[2 : len(names) // 2]
    return name if names == f"a/{name} b/{name}" else names


def _first_line(header: str) -> int:
    """Return the number of a hunk's first new line, from ``@@ -1,2 +3,4 @@``."""
    new = header.partition("+")[2].partition(" ")[0].partition(",")[0] if "+" in header else ""
    return int(new) if new.isdigit() else 0


def request_rows(requests: "Sequence[AttentionRequest]", width: int, now: float) -> list[Line]:
    from rametctl.render.request import request_lines

    if not requests:
        return [line(("nothing waits for you here", "dim"))]
    lines: list[Line] = []
    for request in requests:
        lines += [line("")] if lines else []
        shown = request_lines(request, now, requests, commands=False)  # keys answer it
        lines += [piece for each in shown for piece in wrapped(each, width)]
    return lines


def checkpoint_rows(checkpoints: "Sequence[Checkpoint]", now: float, width: int) -> list[Line]:
    if not checkpoints:
        return [line(("no checkpoints", "dim"))]
    lines = []
    for each in checkpoints:
        mark = "●" if each.current else "○"
        what = each.summary or enum_name(each, "reason") or ""
        counts = f"  {plural(each.files, 'file')} +{each.additions} −{each.deletions}" if each.files else ""
        head = f"{mark} {each.number:>3}  {age(each.create_time, now):>4}  "
        words = truncated(what, max(width - cell_width(head) - cell_width(counts), 10))
        lines.append(line(head, (words, "dim" if each.abandoned else ""), (counts, "dim")))
    return lines


def command_rows(
    commands: "Sequence[Command]", outputs: "Mapping[str, Ran]", ports: Sequence[int], now: float, width: int
) -> list[Line]:
    """Return the newest first, each with the end of its output if the transcript has it."""
    lines: list[Line] = [line((f"no ports; {plural(len(commands), 'command')}; ! runs one", "dim"))]
    if ports:
        lines = [line(("ports ", "dim"), f"{min(ports)}–{max(ports)}", ("; ! runs a command", "dim"))]
    for each in reversed(commands):
        state = enum_name(each, "state") or ""
        words = each.name or " ".join(each.argv)
        head = f"{age(each.start_time, now):>4}  {state:<9} "
        lines.append(
            line(
                (head, "green" if state == "running" else "dim"),
                truncated(words, max(width - len(head) - 12, 10)),
                (f"  {each.exit_status}", "dim"),
            )
        )
        ran = outputs.get(each.id)
        texts = visible(ran.output).strip("\n").split("\n") if ran is not None and ran.output.strip() else []
        before = max(len(texts) - OUTPUT_LINES, 0) + (ran.lines_before if ran is not None else 0)
        if before:
            lines.append(line((f"… {plural(before, 'line')} before; all of it: rametctl logs", "dim"), indent=6))
        lines += [line((truncated(text, width - 6), "dim"), indent=6) for text in texts[-OUTPUT_LINES:]]
    return lines


def conflict_rows(answer: "ListConflictsResponse | None", session: "Session", width: int) -> list[Line]:
    found = [each for each in answer.conflicts if session.id in {each.session_id, each.other_id}] if answer else []
    if not found:
        return [line(("no conflicts with other sessions or the base", "dim"))]
    lines: list[Line] = []
    for each in found:
        mine = each.session_id == session.id
        other = each.other_name if mine else each.session_name
        kind = (enum_name(each, "kind") or "").replace("_", " ")
        lines.append(
            line(
                ("⚡ " if each.red else "· ", "red" if each.red else "dim"),
                (other, "bold"),
                f"  {kind}",
                ("" if each.red else "  merges by itself", "dim"),
            )
        )
        for file in islice(each.files, 20):
            ours = file.lines if mine else file.other_lines
            where = ", ".join(f"{each.start}–{each.end}" if each.end > each.start else str(each.start) for each in ours)
            noun = "line" if where.isdecimal() else "lines"
            lines += wrapped(line(file.path, (f"  {noun} {where}" if where else "", "dim"), indent=4), width)
    return lines


def detail_rows(
    answer: "GetSessionResponse", rules: "Sequence[PermissionRule]", plan: "GetPlanResponse | None", width: int
) -> list[Line]:
    """Describe the session, its permission rules, and the plan that has it as a thread."""
    lines = details(answer)
    held = [each for each in rules if each.session_id in {"", answer.session.id}]
    if held:
        lines += [line(""), line((f"{plural(len(held), 'permission rule')}", "bold"))]
        for rule in held:
            where = "this session" if rule.session_id else rule.repo
            lines.append(line((f"{effect_name(rule):<5} ", "cyan"), rule.rule, (f"  {where}", "dim"), indent=2))
    if plan is not None:
        lines += [line(""), line((f"plan {plan.plan.name}", "bold"))]
        for status in plan.threads:
            state = "landed" if status.landed else state_name(status.session) if status.HasField("session") else "none"
            mark = "▸" if status.thread.id == answer.session.thread else " "
            after = f"  after {', '.join(status.thread.after)}" if status.thread.after else ""
            lines.append(line(f"{mark} {status.place}. {status.thread.id}  ", (state, "dim"), (after, "dim")))
    return [piece for each in lines for piece in wrapped(each, width)]


def noted(text: str, *, error: bool = False) -> Line:
    return line((" ".join(visible(text).split()), "red" if error else ""))
