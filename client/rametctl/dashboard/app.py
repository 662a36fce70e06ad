"""The dashboard's screen: the sessions on the left, one of them on the right, a request to answer
below it."""

import asyncio
import math
import os
import re
import shlex
import signal
import subprocess
import sys
import termios
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from ramet.v1 import attention_pb2, daemon_pb2, landing_pb2, session_pb2, worktree_pb2
from ramet.visible import visible
from ramet.words import plural
from textual import events
from textual.app import App, ComposeResult, SystemCommand
from textual.binding import Binding
from textual.containers import Horizontal, Vertical
from textual.screen import Screen
from textual.theme import BUILTIN_THEMES
from textual.widgets import Static, TextArea

from rametctl.alerts import sequence
from rametctl.connection.link import Link
from rametctl.console.lines import Line, cell_width, line, to_text, truncated, wrapped
from rametctl.dashboard import panes
from rametctl.dashboard.answering import GRACE_S, SOUGHT_S, Shown, as_json, hints, plan_modes, suggested_rules
from rametctl.dashboard.dialogs import Ask, Choose, Confirm, Dialog, Field, Form, Help
from rametctl.dashboard.keyboard import Keyboard
from rametctl.dashboard.keys import GROUPS, Key, at_column, of_hint
from rametctl.dashboard.rows import ARRANGEMENTS, Filter, Known, Row, arrange, head_line, session_line, top_line
from rametctl.dashboard.widgets import Bar, Lines, Prompt
from rametctl.editor import editor_command
from rametctl.errors import ClientError, RefusedError
from rametctl.nouns.contests import archive_requests, members, pick, picked_words, still_working
from rametctl.nouns.prompts import IMAGE_BYTES, clipboard_image, completions, read_images, word_before
from rametctl.nouns.requests import remember
from rametctl.options import MODES, allowed_modes, budget_of, mode_name, mode_number, new_request_id
from rametctl.render.contest import contest_blocks
from rametctl.render.format import parsed, unbold
from rametctl.render.request import body_lines, fields, kind_name, required_fields, title
from rametctl.render.session import at_work, reference, state_name
from rametctl.render.transcript import Ran
from rametctl.view import contests, parts
from rametctl.view.model import Topic, View

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ramet.v1.attention_pb2 import AttentionRequest, Resolution
    from ramet.v1.session_pb2 import Session
    from textual.worker import Worker

    from rametctl.app import App as ClientApp

T = TypeVar("T")

ANSI = BUILTIN_THEMES["ansi-dark"]

PAINT_S = 1 / 8
"""Seconds between two paintings, which combine the changes in between. A key is answered at
once."""
REST = 3.0
"""Least pause after a painting, as a multiple of the time that it took: on a busy machine both
become longer."""
LONGEST_REST_S = 1.0
NARROW = 70
"""Columns below which the list and the session are shown one at a time."""
NOTE_S = 8.0
"""Seconds for which a note is shown."""
FOCUS_S = 20.0
"""Seconds between two reports that the dashboard has the keyboard; the daemon then sends no
notifications."""
TERMINAL_S = 2.0
"""Seconds between two checks that the terminal still exists."""
THEME = replace(
    ANSI,
    name="ramet",
    variables=ANSI.variables
    | {
        "input-cursor-background": "ansi_default",
        "input-cursor-foreground": "ansi_default",
        "input-cursor-text-style": "reverse",
        "scrollbar-background": "ansi_default",
        "scrollbar-background-hover": "ansi_default",
        "scrollbar-background-active": "ansi_default",
    },
)
"""The terminal's own colours, without black and white ones, which are invisible on some."""
UNASKED = frozenset({"archive", "interrupt", "pause", "send_comments", "unsend"})
"""Actions on the selected session that ask no question first."""
Draft = tuple[str, ...]
"""A key that opens a dialog, and the subject of the dialog."""
NEW: Draft = ("n",)
CHOICE = re.compile(r"\W*(\d)\) ")
"""The number of a choice, at the beginning of its row."""
COUNTED = 30
"""Sessions whose changes are counted: those around the cursor."""


def _action(key: Key, pressed: str) -> str:
    """Return the action of a key; one that a text field may use too goes through
    `Dashboard.action_unless_written`."""
    action = f"choose({pressed})" if key.action == "choose" else key.action
    return action if "tab" in pressed or pressed.startswith("ctrl") else f"unless_written('{action}')"


class Dashboard(App[None]):
    """``only`` is the session of an `attach`: it fills the screen, and escape interrupts it."""

    CSS = """
    Screen { background: ansi_default; color: ansi_default; }
    ModalScreen { background: transparent; }
    #top, #tabs, #state, #foot { height: 1; background: ansi_default; }
    #note { height: auto; min-height: 1; max-height: 3; background: ansi_default; }
    #foot { text-style: dim; }
    Input > .input--cursor { background: ansi_default; color: ansi_default; }
    #list { scrollbar-size-vertical: 1; width: 42%; min-width: 34; max-width: 90; border-right: solid ansi_bright_black; background: ansi_default; }
    #side { width: 1fr; background: ansi_default; }
    #content { height: 1fr; background: ansi_default; }
    #request { height: auto; max-height: 55%; border-top: solid ansi_yellow; background: ansi_default; display: none; }
    #request.open { display: block; }
    #prompt { height: auto; max-height: 8; border: none; border-top: solid ansi_bright_black; padding: 0; background: ansi_default; }
    .whole #list { display: none; }
    .narrow #list { width: 100%; max-width: 100%; border-right: none; }
    .narrow #side { display: none; }
    .narrow .whole #side, .narrow.whole #side { display: block; }
    """
    TITLE = "ramet"
    AUTO_FOCUS = None
    COMMAND_PALETTE_BINDING = "ctrl+p"
    BINDINGS: ClassVar[list[Any]] = [
        Binding(each, _action(key, each), key.words, show=False, priority=not each.startswith("ctrl"))
        for keys in GROUPS.values()
        for key in keys
        for each in key.key.split(",")
    ]

    def __init__(self, client: "ClientApp", *, repo_path: str = "", everywhere: bool = False, only: str = "") -> None:
        super().__init__(ansi_color=True, driver_class=Keyboard)
        self.register_theme(THEME)
        self.theme = THEME.name
        self.client = client
        self.only = only
        self.clock: Callable[[], float] = time.monotonic
        self.wall: Callable[[], float] = time.time
        self.view: View | None = None
        self._repo_path = repo_path
        self._repo: tuple[str, str] | None = None  # id and name of the repository of the current directory
        self._everywhere = not repo_path
        self._widened = not (repo_path or everywhere or only)  # all are shown, which the person has not asked for
        self._arrangement = "state"
        self._filter = ""
        self._rows: list[Row] = []
        self._cursor_row = -1
        self._begun = bool(only)  # whether the person acted, or the first request is selected
        self._near: list[str] = []  # sessions around the cursor, whose changes are counted
        self._known = Known()
        self._selected = only
        self._tab = "Conversation"
        self._against = "base"
        self._sibling = ""  # id of the session that a diff is against
        self._talk: panes.Talk | None = None
        self._talk_of: object = None
        self._shown: Shown | None = None
        self._shown_before: dict[str, Shown] = {}  # open requests, perhaps answered in part, by their id
        self._jumped = -math.inf  # when the selection last moved without a key
        self._just_selected = False  # whether the person has just moved to the selected session
        self._hint_rows = 0  # of the request
        self._places: list[panes.Place | None] = []
        self._version = 0
        self._dirty = True
        self._painted_second = 0
        self._rests_until = 0.0
        self._drafts: dict[Draft, Any] = {}  # texts that were refused, or left in a closed dialog
        self._answering: tuple[Draft, Any] | None = None  # the dialog whose answer is handled now, and the answer
        self._note_until = 0.0
        self._quits_until = -math.inf  # a second key quits until then, although texts would be lost
        self._busy: set[str] = set()
        self._undo: list[tuple[str, str]] = []
        self._failure: ClientError | None = None
        self._peeking = False
        self._commenting: Worker[ClientError | None] | None = None  # the newest comment, perhaps still being added
        self._client_id = new_request_id()
        self._alerting = ""  # the value of notify.terminal, once it is known
        self._seen_requests: set[str] = set()
        self._images: dict[str, session_pb2.Image] = {}  # of the prompt, by their labels in it
        self._diff_of: tuple[object, ...] | None = None  # the sources of `_diff`
        self._diff: tuple[list[Line], list[panes.Place | None]] = ([], [])

    # The screen

    def compose(self) -> ComposeResult:
        yield Bar(id="top")
        with Horizontal(id="body"):
            yield Lines(id="list")
            with Vertical(id="side"):
                yield Bar(id="tabs")
                yield Lines(id="content")
                yield Lines(id="request")
                yield Bar(id="state")
                yield Prompt(id="prompt", modal=True)
        yield Static(id="note", markup=False)
        yield Bar(id="foot")

    def on_load(self) -> None:
        """Restore the terminal at every signal, also at one that comes before the first screen."""
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):  # the event loop handles SIGINT
            asyncio.get_running_loop().add_signal_handler(number, self.exit, None, 128 + number)

    def on_mount(self) -> None:
        self.set_class(bool(self.only), "whole")
        self._fit(self.size.width)
        self._prompt.display = bool(self.only)
        if self.only:
            self._write()
        # Textual clears the terminal and draws only what changes then.
        self.app_resume_signal.subscribe(self.screen, lambda _: self.action_redraw())
        self.run_worker(self._live(), group="view")
        self.set_interval(PAINT_S, self._paint_in_turn)
        self.set_interval(FOCUS_S, self._report_focus)
        if not self.is_headless:
            self.set_interval(TERMINAL_S, self._look_for_terminal)

    def _look_for_terminal(self) -> None:
        """End with a terminal that closed without SIGHUP: Textual would read its end over and
        over."""
        if not os.isatty(0):
            self.exit(return_code=128 + signal.SIGHUP)

    async def _live(self) -> None:
        """Keep the view current; a permanent error ends the dashboard."""
        link = Link(self.client.directories, self.client.environ, autostart=self.client.autostart)
        self.view = View(link)
        self.run_worker(self._first_painting(self.view))
        try:
            await self.view.run()
        except ClientError as error:
            self._failure = error
            self.exit()
        finally:
            await link.close()

    async def _first_painting(self, view: View) -> None:
        await view.ready.wait()
        self._paint()
        if self._widened:
            self.note("not in a repository: all repositories are shown")
        self._report_focus()

    async def action_quit(self) -> None:
        """End the dashboard and tell the daemon that the person no longer looks at it; if texts get
        lost, only at a second key."""
        unsent = self._unsent()
        if unsent and self.clock() >= self._quits_until:
            self._quits_until = self.clock() + NOTE_S
            key = "q" if self.focused is None and len(self.screen_stack) == 1 else "ctrl-q"
            self.note(f"{plural(unsent, 'draft')} would be lost; {key} again quits")
            return
        if self.view is not None and self.view.outage is None:
            with suppress(TimeoutError):  # end even if the daemon does not answer
                await asyncio.wait_for(self._tell_focus(self.view, focused=False), 1.0)
        self.exit()

    def _unsent(self) -> int:
        """Return the number of texts for open sessions that were written and not sent. A filter, a
        command, and the choices kept for the next new session are none."""
        open_ = {*self._shown_before, *(self.view.sessions if self.view is not None else ())}
        drafts = [
            draft
            for draft, text in self._drafts.items()
            if text and draft[0] not in "/!" and ("prompt" in text if draft == NEW else draft[1] in open_)
        ]
        return len(drafts) + bool(self._is_drawn and self._prompt.text.strip())

    # Attention: who looks at the dashboard needs no notification; who does not gets one from the
    # terminal too

    def on_app_focus(self, event: events.AppFocus) -> None:
        self._report_focus()
        self._compare_again()
        if self.view is not None:
            self.view.refresh(parts.SETTINGS)  # the person may have changed them in another window: no event

    def on_app_blur(self, event: events.AppBlur) -> None:
        self._report_focus()

    def _report_focus(self) -> None:
        if self.view is not None and self.view.outage is None:
            self.run_worker(self._tell_focus(self.view, focused=self.app_focus), group="focus", exclusive=True)

    async def _tell_focus(self, view: View, *, focused: bool) -> None:
        if not self._alerting:
            config = await self._quietly(view, lambda daemon: daemon.daemon.GetConfig, daemon_pb2.GetConfigRequest())
            settings = {each.key: each.value_json for each in config.settings} if config is not None else {}
            self._alerting = str(parsed(settings.get("notify.terminal", "")) or "auto")
        request = attention_pb2.ReportFocusRequest(client=self._client_id, focused=focused)
        await self._quietly(view, lambda daemon: daemon.attention.ReportFocus, request)

    async def _quietly(
        self, view: View, method: Callable[[Any], Callable[..., Awaitable[T]]], request: Any
    ) -> T | None:
        """Return the answer of a call; None if it failed, which is not reported."""
        try:
            return await view.link.call(method, request)
        except ClientError:
            return None

    def _alert(self) -> None:
        """Notify a person who looks elsewhere that a session now needs them."""
        asked = {each.id: each for requests in self._known.requests.values() for each in requests}
        new = [each for id_, each in asked.items() if id_ not in self._seen_requests and kind_name(each) != "review"]
        first, self._seen_requests = not self._seen_requests and not self._alerting, set(asked)
        if new and not first and not self.app_focus and self._alerting != "off" and self._driver is not None:
            words = new[0].reason or kind_name(new[0])
            self._driver.write(sequence(f"{new[0].session_name} needs you", words, self.client.environ, self._alerting))

    @property
    def failure(self) -> ClientError | None:
        """The error that ended the dashboard."""
        return self._failure

    @property
    def _is_drawn(self) -> bool:
        """Whether the main screen is composed. It is not while the dashboard ends, when work may
        still finish."""
        return bool(self.screen_stack and self.screen_stack[0].query("#list"))

    @property
    def _list(self) -> Lines:
        return self.screen_stack[0].query_one("#list", Lines)

    @property
    def _content(self) -> Lines:
        return self.screen_stack[0].query_one("#content", Lines)

    @property
    def _request(self) -> Lines:
        return self.screen_stack[0].query_one("#request", Lines)

    @property
    def _prompt(self) -> Prompt:
        return self.screen_stack[0].query_one("#prompt", Prompt)

    def _static(self, name: str, item: Line) -> None:
        self.screen_stack[0].query_one(f"#{name}", Bar).show(item)

    def on_resize(self, event: events.Resize) -> None:
        self._fit(event.size.width)
        self._dirty = True

    def _fit(self, width: int) -> None:
        self.set_class(width < NARROW, "narrow")

    # Painting: everything is drawn from the view, a few times a second

    def _answer_key(self) -> None:
        """Paint soon what a key or a click has changed, even while paintings rest."""
        self._dirty = True
        self.call_next(self._paint, hurried=True)

    def _paint_in_turn(self) -> None:
        """Paint what has changed, and then rest as long as `REST` says, so that a key rarely waits
        for a painting."""
        began = time.monotonic()
        if began >= self._rests_until and self._paint():
            self._rests_until = began + LONGEST_REST_S  # or less, once the terminal has it

            def rest() -> None:
                now = time.monotonic()
                self._rests_until = now + min((now - began) * REST, LONGEST_REST_S)

            self.call_after_refresh(rest)

    def _paint(self, *, hurried: bool = False) -> bool:
        """Paint what has changed, at once. Return whether anything has. ``hurried``: for a key; new
        events of the conversation wait."""
        view = self.view
        if not self._is_drawn:
            return False  # not composed yet, or about to end
        if view is None or not view.ready.is_set():
            if view is not None and view.outage is not None:
                self._static("top", panes.noted(f"no daemon: {view.outage.message}", error=True))
            return False
        self._version, changes = view.changes(self._version)
        topics = {change.topic for change in changes}
        second = int(self.wall())
        tick = second != self._painted_second
        if not (changes or self._dirty or tick):
            return False
        first = self._dirty
        self._dirty, self._painted_second = False, second
        if first or topics & {Topic.SESSION, Topic.PART, Topic.CONNECTION}:
            self._arrange()
        if first or tick or topics & {Topic.SESSION, Topic.CONNECTION, Topic.PART}:
            self._paint_list()
        if first or topics - {Topic.CONNECTION} or tick:
            self._paint_side(hurried=hurried)
        if self._note_until and self.clock() >= self._note_until:
            self._note_until = 0.0
            self._show_note([])
        return True

    def _arrange(self) -> None:
        view = self.view
        assert view is not None
        if self._repo is None and self._repo_path:
            self._find_repo()
        requests: dict[str, list[AttentionRequest]] = defaultdict(list)
        for request in view.part(parts.REQUESTS).value or ():
            requests[request.session_id].append(request)
        ids = {request.id for each in requests.values() for request in each}
        self._shown_before = {id_: shown for id_, shown in self._shown_before.items() if id_ in ids}
        pull_requests = {each.session_id: each for each in view.part(parts.PULL_REQUESTS).value or ()}
        conflicts: set[str] = set()
        for repo in {session.repo_id for session in view.sessions.values()}:
            answer = view.part(parts.CONFLICTS, repo).value
            for each in answer.conflicts if answer is not None else ():
                conflicts |= {each.session_id, each.other_id} if each.red else set()
        counts = {id_: counted for id_ in view.sessions if (counted := view.part(parts.COUNTS, id_).value) is not None}
        self._known = Known(requests, pull_requests, frozenset(conflicts), counts, self._near)
        repo_id = "" if self._everywhere or self._repo is None else self._repo[0]
        self._rows = arrange(
            view.sessions.values(),
            self._known,
            filtered=Filter.parse(self._filter),
            repo_id=repo_id,
            by=self._arrangement,
        )
        self._alert()
        self._settle()
        self._want()

    def _settle(self) -> None:
        """Keep the cursor on the selected session, and on the screen; if it left the list, select
        its neighbour, unless the person writes a prompt for it.

        Requests, which are first in the list, are known a moment after it is shown: until a key,
        select the first session again then.
        """
        assert self.view is not None
        ids = [row.session_id for row in self._rows]
        if not self._begun and self.view.part(parts.REQUESTS).value is not None:
            self._begun = True
            if (first := next(filter(None, ids), "")) != self._selected:
                self._jump(first)
        if not self.only and not self._prompt.has_focus and (not self._selected or self._selected not in ids):
            at = min(max(self._list.cursor, 0), len(ids) - 1)
            near = [*ids[at:], *reversed(ids[:at])] if ids else []
            self._jump(next((each for each in near if each), ""))
        self._cursor_row = ids.index(self._selected) if self._selected in ids else -1

    def _want(self) -> None:
        view = self.view
        assert view is not None
        wanted: list[tuple[parts.Part[Any], str]] = [
            (part, "") for part in (parts.REQUESTS, parts.PULL_REQUESTS, parts.SETTINGS)
        ]
        wanted += [(parts.CONFLICTS, each) for each in sorted({s.repo_id for s in view.sessions.values()})]
        cursor = max(self._cursor_row, 0)
        near = self._rows[max(cursor - COUNTED // 2, 0) : cursor + COUNTED]
        self._near = [row.session_id for row in near if row.session_id]
        wanted += [(parts.COUNTS, each) for each in self._near if view.sessions[each].turns]
        chosen = self._selected
        if chosen:
            shown = view.sessions.get(chosen)
            if shown is not None and shown.turns and shown.branch:
                wanted.append((parts.COUNTS, f"{chosen} {shown.branch}"))  # what is not committed
            match self._tab:
                case "Diff":
                    wanted += [(parts.DIFF, self._diff_key()), (parts.COMMENTS, chosen)]
                    if self._against == "turn":
                        wanted.append((parts.CHECKPOINTS, chosen))
                case "Checkpoints":
                    wanted.append((parts.CHECKPOINTS, chosen))
                case "Commands":
                    wanted.append((parts.COMMANDS, chosen))
                case panes.CONTEST:
                    wanted += contests.wants(view, contests.contest_of(shown))
                case "Details":
                    wanted.append((parts.DETAILS, chosen))
                    if shown is not None:
                        wanted.append((parts.RULES, shown.repo_id))
                        wanted += [(parts.PLAN, shown.plan_id)] if shown.plan_id else []
        view.want(wanted, [chosen] if chosen in view.sessions else [])

    def _diff_key(self) -> str:
        against = self._sibling if self._against == "sibling" else self._against
        if against == self._selected:
            against = "base"
        if against == "turn" and self.view is not None:
            made = self.view.part(parts.CHECKPOINTS, self._selected).value or []
            turns = [each for each in made if not each.abandoned]
            against = str(turns[1].number) if len(turns) > 1 else "base"
        return f"{self._selected} {against}"

    def _paint_list(self) -> None:
        view = self.view
        assert view is not None
        where = "all repositories" if self._everywhere or self._repo is None else self._repo[1]
        if self._filter:
            where += f" /{self._filter}"
        outage = None if view.outage is None else time.monotonic() - view.outage.since
        shown = [
            session
            for session in view.sessions.values()
            if self._everywhere or self._repo is None or session.repo_id == self._repo[0]
        ]
        self._static("top", top_line(shown, self._known, where=visible(where), width=self.size.width, outage=outage))
        many = self._everywhere and len({session.repo_id for session in view.sessions.values()}) > 1
        now, rows, known = self.wall(), self._rows, self._known
        width = max(self._list.room(len(rows)), 20)

        def draw(index: int) -> Line:
            row = rows[index]
            session = view.sessions.get(row.session_id)
            if session is None:
                return head_line(row, width)
            return session_line(session, row, known, width=width, now=now, repo=many)

        if rows:
            self._list.show_rows(len(rows), draw)
            if self._cursor_row != self._list.cursor:
                self._list.move_to(self._cursor_row)
        else:
            what = "no session fits; / changes the filter" if self._filter else "no sessions here; n creates one"
            others = len(view.sessions) - len(shown)
            more = [f"{plural(others, 'session')} in other repositories: *"] if others else []
            self._list.show([piece for each in (what, *more) for piece in wrapped(line((each, "dim")), width)])

    @property
    def session(self) -> "Session | None":
        """The selected session."""
        return self.view.sessions.get(self._selected) if self.view is not None else None

    def _chosen(self, *, live: bool = True) -> "Session | None":
        """The session that a key acts on; says why it acts on none. ``live``: an archived session
        has not what it takes."""
        session = self.session
        if session is None:
            self.note("no session is selected")
        elif live and state_name(session) == "archived":
            self.note(f"{session.name} is archived; run: rametctl restore {reference(session)}")
            return None
        return session

    def _paint_side(self, *, hurried: bool = False) -> None:
        session = self.session
        if session is None:
            self._static("tabs", line(""))
            self._content.show([line(("gone: it was removed" if self._selected else "", "dim"))])
            self._static("state", line(""))
            self._show_request(None)
            return
        room = max(self._content.size.width, 20)
        tabs = panes.tabs_of(session)
        if self._tab not in tabs:
            self._tab = tabs[0]
        self._static("tabs", panes.tabs_line(visible(session.name), self._tab, room, tabs))
        self._take_events(session, hurried=hurried)
        width = max(self._content.size.width - 2, 20)
        assert self._talk is not None
        content = self._content
        follow, below = content.at_end, content.count - content.scroll_offset.y
        filling = self._talk.partial
        content.sticky = self._tab == "Conversation"
        content.show(self._tab_lines(session, width))
        if self._tab == "Conversation" and follow:
            content.to_end()
        elif self._tab == "Conversation" and filling:  # earlier lines were added: show the same ones
            content.scroll_to(y=content.count - below, animate=False, force=True)
        self._show_request(self._open_request())
        self._dirty |= self._tab == "Conversation" and self._talk.partial
        self._static("state", self._talk.status_line(session, self.wall(), width, "esc" if self.only else "i"))
        self._paint_foot()

    def _take_events(self, session: "Session", *, hurried: bool) -> None:
        assert self.view is not None
        transcript = self.view.transcripts.get(session.id)
        if self._talk is None or transcript is not self._talk_of:
            names = {each.id: each.name for each in self.view.sessions.values()}
            self._talk, self._talk_of = panes.Talk(session, names), transcript
        elif hurried and transcript is not None:
            self._dirty |= bool(transcript.fresh)
            return
        if transcript is not None:
            self._talk.add(transcript.take())

    def _tab_lines(self, session: "Session", width: int) -> list[Line]:
        view, talk = self.view, self._talk
        assert view is not None
        assert talk is not None
        now = self.wall()
        match self._tab:
            case "Conversation":
                return talk.lines(width)
            case "Diff":
                return self._diff_lines(session, width)
            case "Requests":
                return panes.request_rows(self._known.requests.get(session.id, ()), width, now)
            case "Checkpoints":
                slot = view.part(parts.CHECKPOINTS, session.id)
                return _failed(slot.error, width) or panes.checkpoint_rows(slot.value or (), now, width)
            case "Commands":
                commands = view.part(parts.COMMANDS, session.id)
                outputs = {each.command.id: each for each in talk.conversation.entries if isinstance(each, Ran)}
                return _failed(commands.error, width) or panes.command_rows(
                    commands.value or (), outputs, list(session.ports), now, width
                )
            case "Conflicts":
                return panes.conflict_rows(view.part(parts.CONFLICTS, session.repo_id).value, session, width)
            case panes.CONTEST:
                contest = contests.comparison(view, contests.contest_of(session))
                shown = contest_blocks(contest) if contest is not None else []
                return [piece for each in shown for piece in wrapped(each, width)]
            case _:
                details = view.part(parts.DETAILS, session.id)
                rules = view.part(parts.RULES, session.repo_id).value or []
                plan = view.part(parts.PLAN, session.plan_id).value if session.plan_id else None
                return _failed(details.error, width) or (
                    panes.detail_rows(details.value, rules, plan, width) if details.value else []
                )

    def _diff_lines(self, session: "Session", width: int) -> list[Line]:
        assert self.view is not None
        slot = self.view.part(parts.DIFF, self._diff_key())
        other = self.view.sessions.get(self._sibling) if self._against == "sibling" else None
        against = visible(other.name) if other is not None and other.id != session.id else self._against
        against = truncated(against, max(width - 20, 10))
        keys = panes.fitting(
            "b another base · c comments · B another session · C sends all", width - cell_width(against) - 10
        )
        head = line((f"against {against}", "cyan"), (f"  {keys}", "dim"))
        self._places = [None]
        if slot.value is None:
            return [head, *(_failed(slot.error, width) or [line(("…", "dim"))])]
        comments = self.view.part(parts.COMMENTS, session.id).value
        of = (slot.value, comments, width)
        if self._diff_of is None or any(a is not b for a, b in zip(self._diff_of, of, strict=True)):
            self._diff_of, self._diff = of, panes.diff_rows(slot.value, comments or (), width)
        lines, places = self._diff
        self._places += places
        return [head, *(lines or [line(("no changes", "dim"))])]

    def _hints(self, shown: Shown) -> str:
        session = self.session
        landable = session is None or not self._unchanged(session)
        return hints(shown, landable=landable, modes=self._allowed)

    def _open_request(self) -> "AttentionRequest | None":
        """Return the request of the selected session to answer first."""
        blocking = self._known.blocking(self._selected)
        waiting = [*blocking, *(each for each in self._known.requests.get(self._selected, ()) if each not in blocking)]
        return waiting[0] if waiting else None

    def _show_request(self, request: "AttentionRequest | None") -> None:
        panel = self._request
        panel.set_class(request is not None, "open")
        sought, self._just_selected = self._just_selected, False
        if request is None:
            self._shown = None
            return
        if self._shown is None or self._shown.request.id != request.id:
            self._shown = self._shown_before.setdefault(request.id, Shown(request, 0))
            self._shown.since = self.clock() - (GRACE_S - SOUGHT_S if sought else 0)
            self._shown.seen = False
            remember(self.client, [request])
            self._compare_again()
            panel.scroll_to(y=0, animate=False, force=True)
        self._shown.request = request
        width = max(panel.size.width or self._content.size.width, 20) - 2
        lines = panes.hint_lines((title(request), "bold yellow"), self._hints(self._shown), width)
        self._hint_rows = len(lines)
        body = body_lines(request, answers=self._shown.answers, chosen=self._shown.chosen)
        if kind_name(request) != "review" or self._tab != "Conversation":  # else the conversation ends with this text
            lines += [piece for each in body for piece in wrapped(each, width)]
        panel.show(lines)
        if panel.size.height and panel.at_end:
            self._shown.seen = True

    def _paint_foot(self) -> None:
        """Show the keys of the current focus, the most useful first, as many as fit."""
        if self.only:
            keys = "space answer · esc interrupt · ctrl-q detach · enter send · r write · tab tabs"
        elif self.screen_stack[0].focused is self._prompt:
            keys = "enter send · esc back · shift-enter new line · space answer · ↑ earlier · @file or /command: tab completes · ctrl-v pastes an image"
        else:
            answer = "space answer"
            if not self._known.requests.get(self._selected) and self._waiting():
                answer = "N answer next"
            enter = "enter write" if self.has_class("whole") else "enter open"
            keys = f"? all keys · q quit · j k move · {enter} · {answer} · tab tabs · n new · r write · L land · x remove · / filter"
        self._static("foot", line(panes.fitting(keys, self.size.width)))

    # Notes and work

    def note(self, text: str, *, error: bool = False) -> None:
        """Show a text in the line above the keys."""
        self._note_until = self.clock() + NOTE_S
        self._show_note(wrapped(panes.noted(text, error=error), max(self.size.width, 20))[:3])

    def _show_note(self, lines: list[Line]) -> None:
        if self._is_drawn:
            note = self.screen_stack[0].query_one("#note", Static)
            # A new layout draws the complete screen again.
            note.update(to_text(lines), layout=note.size.height != max(len(lines), 1))

    def do(self, words: str, work: Coroutine[Any, Any, str]) -> "Worker[ClientError | None]":
        """Run ``work`` in the background: show ``words`` while it runs, then its result or error as
        a note. The worker returns the error. Text of a dialog that led to an error is offered
        again."""
        answering = self._answering

        async def run() -> ClientError | None:
            try:
                self.note(await work)
            except ClientError as error:
                self._refused(error, answering)
                return error
            else:
                return None
            finally:
                self._busy.discard(words)
                self._dirty = True

        self._busy.add(words)
        self.note(f"{words} …")
        return self.run_worker(run(), exit_on_error=True)

    async def call(self, method: Callable[[Any], Callable[..., Awaitable[T]]], request: Any) -> T:
        assert self.view is not None
        return await self.view.link.call(method, request)

    def _refused(self, error: ClientError, answering: "tuple[Draft, Any] | None") -> None:
        """Note an error; ``answering``: the draft and the answer of a dialog that led to it."""
        words = [error.message, error.hint]
        if answering is not None:
            draft, answer = answering
            self._drafts[draft] = answer
            place = f" on {draft[2]}" if draft[0] == "c" else ""
            words.append(f"{draft[0]}{place} has your text")
        self.note("; ".join(filter(None, words)), error=True)

    def ask(self, dialog: Dialog, then: Callable[[Any], object], draft: "Draft | None" = None) -> None:
        """Show a dialog; ``then`` gets its answer unless the person closed it.

        ``draft`` is the key that opens the dialog, and its subject. With it, text that the person
        wrote and did not send, or that led to an error, is offered by the next such dialog.
        """
        before = self._drafts.get(draft) if draft is not None else None
        if before is not None:
            dialog.restore(before)

        def answered(answer: Any) -> None:
            if draft is None or self._drafts.get(draft) is not before:
                pass  # an earlier dialog's text has been refused meanwhile, and is still to be offered
            elif answer is None and dialog.written != dialog.offered:
                self._drafts[draft] = dialog.written
            else:
                self._drafts.pop(draft, None)
            if answer is not None:
                self._answering = None if draft is None else (draft, answer)
                then(answer)
                self._answering = None
                self._answer_key()

        self.push_screen(dialog, answered)

    def ask_late(
        self, dialog: Dialog, then: Callable[[Any], object], note: str, key: str, draft: "Draft | None" = None
    ) -> str:
        """Ask from work that ``key`` began; the person may be elsewhere by now. Return the note of
        this work."""
        if self._engaged:
            return f"{note}; {key} asks again what to do"
        dialog.late = True
        self.ask(dialog, then, draft)
        return note

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Disable the dashboard's keys below a dialog and in a text field."""
        if action == "unless_written" and self.focused is not None:
            return False
        if len(self.screen_stack) > 1 and action not in {"quit", "suspend_process", "command_palette", "help_quit"}:
            return not hasattr(self, f"action_{action}") or action in {"focus_next", "focus_previous"}
        return True

    def on_paste(self, event: events.Paste) -> None:
        """Text that no field takes is no key either."""
        if self.focused is None:
            self.note("pasted text is ignored here; r begins a prompt")

    async def action_unless_written(self, action: str) -> None:
        """Run an action before the next key is processed: that key may be meant for a field that
        the action focuses."""
        self._begun = True
        if action in UNASKED and self.clock() - self._jumped < GRACE_S:
            self.note("another session has just been selected; press it again")
            return
        await self.run_action(action)
        self.call_next(self._paint, hurried=True)

    # Moving

    def _select(self, session_id: str) -> None:
        if session_id == self._selected:
            return
        self._selected = session_id
        self._talk = None
        self._shown = None
        self._peeking = False
        self._dirty = True
        self._content.cursor = -1
        self.call_after_refresh(self._content.to_end)

    def _jump(self, session_id: str) -> None:
        """Select a session without a key of the person."""
        if self._selected:
            self._jumped = self.clock()
        self._select(session_id)

    @property
    def _engaged(self) -> bool:
        """Whether the person writes a prompt or has a dialog open; work that ends meanwhile changes
        neither."""
        return self._prompt.has_focus or len(self.screen_stack) > 1

    def _to_row(self, row: int, step: int) -> None:
        """Select the session at or after ``row``, and skip heads of groups. A note about another
        session is outdated then."""
        self._note_until = min(self._note_until, self.clock())
        while 0 <= row < len(self._rows) and not self._rows[row].session_id:
            row += step
        if 0 <= row < len(self._rows):
            self._just_selected = self._rows[row].session_id != self._selected
            self._select(self._rows[row].session_id)
            self._list.move_to(row)
            if row <= 1:
                self._list.scroll_to(y=0, animate=False, force=True)

    @property
    def _on_rows(self) -> bool:
        """Whether the cursor keys move in the rows of the tab, as in a diff."""
        return self._tab in {"Diff", "Checkpoints", "Commands"} and self.has_class("whole")

    def action_cursor(self, by: int) -> None:
        if self._on_rows:
            start = self._first_place() if self._content.cursor < 0 else self._content.cursor + by
            self._content.move_to(max(start, 0))
        elif self.has_class("whole"):
            self._content.scroll_relative(y=by, animate=False, force=True)
        else:
            self._to_row(self._list.cursor + by, by)

    def _first_place(self) -> int:
        """Return the row of a file's first line in a diff, at or below the cursor; in other tabs
        the first row."""
        if self._tab != "Diff":
            return 0
        rows = [row for row, place in enumerate(self._places) if place is not None and place.line]
        return next((row for row in rows if row >= self._content.cursor), rows[-1] if rows else -1)

    def action_edge(self, direction: int) -> None:
        if self.has_class("whole"):
            row = 0 if direction < 0 else self._content.count - 1
            if self._on_rows:
                self._content.move_to(row)
            else:
                self._content.scroll_to(y=0 if direction < 0 else self._content.count, animate=False, force=True)
        else:
            self._to_row(0 if direction < 0 else len(self._rows) - 1, -direction)

    def action_scroll(self, direction: int) -> None:
        panel = self._request
        if self._shown is not None and not panel.at_end and direction > 0:
            panel.page(direction)
            self.call_after_refresh(self._paint_side)
        elif self._shown is not None and panel.scroll_offset.y > 0 and direction < 0:
            panel.page(direction)
        else:
            self._content.page(direction)

    def action_tab(self, by: int) -> None:
        if by > 0 and self._prompt.has_focus and (word := word_before(self._prompt.before_cursor)):
            self._complete(self._prompt, word)
            return
        tabs = panes.tabs_of(self.session) if self.session is not None else panes.TABS
        self._open_tab(tabs[(tabs.index(self._tab) + by) % len(tabs)] if self._tab in tabs else tabs[0])

    def _open_tab(self, tab: str) -> None:
        self._tab = tab
        if self._tab == "Conversation" and self._prompt.display:
            self._write()
        elif not (self._prompt.has_focus and self._prompt.text):  # else the next letters belong to the text
            self.set_focus(None)  # the keys move and comment there; r writes
        self._content.cursor = -1
        self._content.scroll_to(y=0, animate=False, force=True)
        self._answer_key()
        if self._tab == "Conversation":
            self.call_after_refresh(self._content.to_end)

    def action_enter(self) -> None:
        shown = self._shown
        if self._peeking and shown is not None and shown.chosen:
            if shown.confirm():
                self._reply(shown)
            self._dirty = True
        elif self._tab == "Checkpoints" and self.has_class("whole") and self._content.cursor >= 0:
            self._rewind()
        elif self.session is not None:
            opened = self.has_class("whole")
            self.add_class("whole")
            self._dirty = True
            if opened or self._tab == "Conversation":
                self.action_prompt()

    def action_leave(self) -> None:
        self._peeking = False
        if self.only:
            self.action_interrupt()
        elif self.has_class("whole"):
            self.remove_class("whole")
            self._prompt.display = False
        elif self._filter:
            self._filter = ""
        self._dirty = True

    def action_peek(self) -> None:
        """Show the session's request; on a narrow screen without the list."""
        if self._shown is None:
            self.note("it asks nothing")
            return
        self._peeking = not self._peeking
        if self.has_class("narrow"):
            self.set_class(self._peeking, "whole")
        elif self._peeking:
            self.note(self._hints(self._shown))
        self._dirty = True

    def _waiting(self) -> list[int]:
        """Rows of the sessions that need the person."""
        requests = self._known.requests
        return [
            at
            for at, row in enumerate(self._rows)
            if row.session_id in requests and self._known.blocking(row.session_id)
        ]

    def action_next_waiting(self) -> None:
        rows = self._waiting()
        later = [index for index in rows if index > self._list.cursor]
        if rows:
            self._to_row((later or rows)[0], 1)
        else:
            self.note("no session needs you")

    def action_filter(self) -> None:
        def then(text: str) -> None:
            self._filter = text
            self._dirty = True

        self.ask(
            Ask(
                "Filter: words, s:state, a:agent, r:repository; esc in the list ends it",
                does="filter",
                text=self._filter,
                empty="no filter",
            ),
            then,
            ("/",),
        )

    def action_arrange(self) -> None:
        self._arrangement = ARRANGEMENTS[(ARRANGEMENTS.index(self._arrangement) + 1) % len(ARRANGEMENTS)]
        self._dirty = True
        self.note(f"arranged by {self._arrangement}")

    def action_everywhere(self) -> None:
        if self._repo is None:
            self.note("not inside a repository that has sessions: all are shown")
        self._everywhere = not self._everywhere or self._repo is None
        self._dirty = True

    def action_fold(self) -> None:
        if self._talk is not None:
            self._talk.fold()
            self._dirty = True

    def on_lines_picked(self, event: Lines.Picked) -> None:
        self._begun = True
        opens = event.widget.id == "content"
        if event.widget.id == "list" and event.row < len(self._rows) and self._rows[event.row].session_id:
            self._to_row(event.row, 1)
            opens = True
        elif event.widget.id == "content" and self._tab in {"Diff", "Checkpoints"}:
            self.add_class("whole")
            self._content.move_to(event.row)
        elif event.widget.id == "request" and not event.twice and (key := self._key_at(event)):
            self.screen_stack[0].set_focus(None)
            self._peeking = True
            self.simulate_key(key)
        if event.twice and opens:
            self._peeking = False  # a click sends no answers
            self.action_enter()
        self._answer_key()

    def _key_at(self, event: Lines.Picked) -> str:
        """Return the key of a clicked hint, or of the choice in a clicked row, of the request."""
        text = event.widget.row(event.row).text
        if event.row < self._hint_rows:
            return of_hint(at_column(text, event.column))
        if self._shown is None or self._shown.question is None:
            return ""
        choices = [CHOICE.match(event.widget.row(row).text) for row in range(self._hint_rows, event.row + 1)]
        first = sum(choice is not None and choice[1] == "1" for choice in choices) == 1
        return choices[-1][1] if choices[-1] and first else ""  # those of later questions come after

    def on_bar_picked(self, event: Bar.Picked) -> None:
        """Open the tab, or press the key, that was clicked; a dialog's too."""
        if event.widget.id == "tabs":
            word = at_column(event.text, event.column, " ")
            if self.session is not None and word in panes.tabs_of(self.session):
                self._open_tab(word)
        elif event.widget.id not in {"top", "state"} and (key := of_hint(at_column(event.text, event.column))):
            self.simulate_key(key)

    def _find_repo(self) -> None:
        """Find the repository of the current directory, once the daemon knows it."""
        from ramet.v1 import repo_pb2

        async def find() -> None:
            try:
                found = await self.call(
                    lambda daemon: daemon.repos.GetRepo, repo_pb2.GetRepoRequest(repo=self._repo_path)
                )
            except ClientError:
                self._everywhere = True
                self.note("this repository has no sessions yet: all repositories are shown")
            else:
                self._repo = (found.repo.id, found.repo.name)
            self._dirty = True

        self._repo = ("", "here")
        self.run_worker(find())

    # Answering

    def _answerable(self, *kinds: str) -> Shown | None:
        """Return the request on the screen if a key may answer it; else show why not."""
        shown = self._shown
        if shown is None:
            self.note("it asks nothing")
            return None
        if kinds and kind_name(shown.request) not in kinds:
            self.note(f"this is a {kind_name(shown.request)}: {self._hints(shown)}")
            return None
        if f"answering {shown.request.session_name}" in self._busy:
            self.note(f"your answer to {shown.request.session_name} is on its way")
            return None
        if refusal := shown.refusal(self.clock()):
            self.note(refusal)
            return None
        return shown

    def _resolve(self, request: "AttentionRequest", resolution: "Resolution", words: str) -> None:
        async def work() -> str:
            answer = attention_pb2.ResolveRequestRequest(
                request=request.id, resolution=resolution, request_id=new_request_id()
            )
            await self.call(lambda daemon: daemon.attention.ResolveRequest, answer)
            if self.view is not None:
                self.view.refresh(parts.REQUESTS)
            return f"{request.session_name}: {words}"

        self._peeking = False
        if self.only or (self.has_class("whole") and self._prompt.display):
            self._write()
        self.do(f"answering {request.session_name}", work())

    def _approve(self, request: "AttentionRequest", words: str = "approved", **fields: Any) -> None:
        self._resolve(request, attention_pb2.Resolution(approve=attention_pb2.Approval(**fields)), words)

    def action_approve(self) -> None:
        shown = self._answerable()
        if shown is None:
            return
        match kind_name(shown.request):
            case "question":
                self.note(self._hints(shown))
            case "elicitation" if fields(parsed(shown.request.input_json)):
                self._fill_in(shown.request)
            case "review":
                self._approve(shown.request, "done")
            case "conflict":
                self._approve(shown.request, "seen")
            case _:
                self._approve(shown.request)

    def action_approve_session(self) -> None:
        if (shown := self._answerable("permission")) is not None:
            self._approve(shown.request, "approved for this session", scope=attention_pb2.APPROVAL_SCOPE_SESSION)

    def action_approve_always(self) -> None:
        shown = self._answerable("permission")
        if shown is None:
            return
        rules = suggested_rules(shown.request)
        others = [line((f"or: {rule.replace(chr(10), '  ')}", "dim")) for rule in rules[1:]]

        def then(text: str) -> None:
            stored = [rule.strip() for rule in text.split("\n") if rule.strip()]
            always = attention_pb2.APPROVAL_SCOPE_ALWAYS
            self._approve(shown.request, f"approved; from now on: {', '.join(stored)}", scope=always, rules=stored)

        question = f"Allow from now on in {shown.request.repo} (one rule a line):"
        dialog = Ask(question, does="approve", text=rules[0] if rules else "", details=others)
        self.ask(dialog, then, ("a", shown.request.id))

    def action_edit_input(self) -> None:
        shown = self._answerable("permission", "plan")
        if shown is None:
            return
        from rametctl.nouns.requests import edited_input

        try:
            with self._terminal_released():
                edited = edited_input(self.client, shown.request)
        except ClientError as error:
            self.note(error.message, error=True)
            return
        self._approve(shown.request, "approved as edited", updated_input_json=edited)

    def action_deny(self) -> None:
        shown = self._answerable()
        if shown is None:
            return
        request = shown.request
        match kind_name(request):
            case "question":
                self.note(self._hints(shown))
            case "conflict" | "landing" | "trouble" | "login" | "elicitation" | "ownership":
                self._resolve(request, attention_pb2.Resolution(deny=attention_pb2.Denial()), "denied")
            case kind:
                question = {"plan": "What should change?", "review": "What should be better?"}.get(kind)
                self.ask(
                    Ask(f"{question or 'Why not?'} The agent gets your answer."),
                    lambda why: self._resolve(
                        request,
                        attention_pb2.Resolution(deny=attention_pb2.Denial(message=why)),
                        "sent back to the agent" if question else "denied",
                    ),
                    ("d", request.id),
                )

    def action_choose(self, number: int) -> None:
        shown = self._answerable("question", "plan")
        if shown is None:
            return
        if kind_name(shown.request) == "plan":
            modes = plan_modes(self._allowed)
            if number <= len(modes):
                mode = modes[number - 1]
                self._approve(shown.request, f"continues in {mode}", mode=mode_number(mode))
        elif shown.choose(number):
            self._reply(shown)
        else:
            self._peeking = True
        self._dirty = True

    def action_previous_question(self) -> None:
        shown = self._answerable("question")
        if shown is not None and shown.answers:
            shown.answers.pop()
            self._dirty = True
        elif shown is not None:
            self.note("this is the first question")

    def action_reply(self) -> None:
        shown = self._answerable("question")
        if shown is None or shown.question is None:
            return

        def then(text: str) -> None:
            if shown.confirm(text):
                self._reply(shown)
            self._dirty = True

        ticked = [line((f"sent with your ticks: {', '.join(shown.ticked)}", "dim"))] if shown.ticked else []
        dialog = Ask(str(shown.question.get("question", "")), details=ticked)
        self.ask(dialog, then, ("t", shown.request.id, str(len(shown.answers))))

    def _reply(self, shown: Shown) -> None:
        answers = list(shown.answers)
        del shown.answers[-1:]  # if it is refused, the last question is asked again
        self._resolve(
            shown.request,
            attention_pb2.Resolution(reply=attention_pb2.Reply(answers=answers)),
            f"answered: {'; '.join(answers)}",
        )

    def _fill_in(self, request: "AttentionRequest") -> None:
        from rametctl.nouns.elicitation import content

        asked = parsed(request.input_json)
        needed = required_fields(asked)
        entries = [
            Field(
                name,
                name,
                str(schema.get("description") or schema.get("title") or schema.get("type") or "")
                + ("" if name in needed else " (may be left out)"),
                str(schema.get("default", "")),
            )
            for name, schema in fields(asked).items()
        ]

        def then(answer: dict[str, str]) -> None:
            pairs = [f"{name}={text}" for name, text in answer.items() if text and name != "prompt"]
            try:
                filled = content(asked, pairs)
            except ClientError as error:
                self._refused(error, self._answering)
            else:
                self._approve(request, "filled in", updated_input_json=as_json(filled))

        message = asked.get("message", "") if isinstance(asked, dict) else ""
        self.ask(Form(str(message), entries), then, ("y", request.id))

    # Talking

    def _write(self) -> None:
        """Focus the prompt before the next key."""
        self.screen_stack[0].set_focus(self._prompt)

    def action_prompt(self) -> None:
        if self._chosen() is None:
            return
        self._prompt.display = True
        self._write()
        self._dirty = True

    def on_prompt_sent(self, event: Prompt.Sent) -> None:
        session = self.session
        if session is None:
            self._prompt.offer(event.text)
            self.note("not sent: the session was removed", error=True)
            return

        async def work() -> str:
            images = {label: image for label, image in self._images.items() if label in event.text}
            request = session_pb2.SendPromptRequest(
                session=session.id, prompt=event.text, images=images.values(), request_id=new_request_id()
            )
            try:
                await self.call(lambda daemon: daemon.sessions.SendPrompt, request)
            except ClientError as error:
                if self._selected == session.id and self._prompt.display and not self._prompt.text:
                    self._prompt.offer(event.text)
                    raise
                raise ClientError(error.message, hint="↑ in a prompt recalls your text") from error
            for label in images:
                self._images.pop(label, None)
            return f"sent to {session.name}" + (f" with {plural(len(images), 'image')}" if images else "")

        self.do(f"sending to {session.name}", work())
        self._content.to_end()

    def on_prompt_dropped(self, event: Prompt.Dropped) -> None:
        try:
            (image,) = read_images([event.path], self.client.cwd)
        except ClientError as error:
            self.note(error.message, error=True)
        else:
            self._add_image(image.data)

    def on_prompt_pasting(self, event: Prompt.Pasting) -> None:
        async def work() -> None:
            if found := await asyncio.to_thread(clipboard_image, self.client.environ):
                self._add_image(found)
            elif not self.clipboard:
                self.note("no image in the clipboard; wl-paste, xclip or pngpaste reads it")
            else:
                TextArea.action_paste(self._prompt)

        self.run_worker(work(), group="paste", exclusive=True)

    def _add_image(self, data: bytes) -> None:
        """Attach an image to the prompt, as long as the prompt has its label."""
        if len(data) > IMAGE_BYTES:
            self.note(f"the image is over {IMAGE_BYTES:,} bytes", error=True)
            return
        label = next(label for number in count(1) if (label := f"[image {number}]") not in self._images)
        self._images[label] = session_pb2.Image(data=data)
        self._prompt.insert(f"{label} ")

    def action_unsend(self) -> None:
        """Take back the newest queued prompt and insert it before the text being written."""
        session = self._chosen()
        if session is None:
            return

        async def work() -> str:
            request = session_pb2.WithdrawPromptsRequest(session=session.id, request_id=new_request_id())
            answer = await self.call(lambda daemon: daemon.sessions.WithdrawPrompts, request)
            texts = [each.text for each in answer.withdrawn]
            if self._selected != session.id:
                self._prompt.remember("\n".join(texts))
                return f"{session.name}: taken back; ↑ in a prompt recalls it"
            self._prompt.offer("\n".join([*texts, *filter(None, [self._prompt.text])]))
            self.action_prompt()
            return f"{session.name}: taken back; enter sends it again"

        self.do(f"taking back a prompt of {session.name}", work())

    def on_prompt_completing(self, event: Prompt.Completing) -> None:
        self._complete(event.prompt, event.word)

    def _complete(self, prompt: Prompt, word: str) -> None:
        """Complete a word: a file or command of the selected session, or of the repository of a new
        one."""
        directory = self._new_path() if isinstance(self.screen, Form) else self.session.worktree if self.session else ""
        if not directory:
            return

        async def work() -> None:
            found = await completions(word, directory, self.client.environ)
            if len(found) > 1:
                shared = os.path.commonprefix(found)  # noqa: RUF071  characters, not folders
                prompt.complete(word, shared if len(shared) > len(word) and shared.startswith(word) else word)
                self.note(" · ".join(found))
            elif found:
                prompt.complete(word, f"{found[0]} ")
            else:
                self.note(f"nothing here is called {word[1:]}" if word[1:] else "nothing to complete")

        self.run_worker(work(), group="complete", exclusive=True)

    def on_prompt_left(self, event: Prompt.Left) -> None:
        if self.only:
            self._write()
            self.action_interrupt()
            return
        if not self._prompt.text:
            self._prompt.display = False
            self.remove_class("whole")
        self._answer_key()

    def on_prompt_answering(self, event: Prompt.Answering) -> None:
        """Focus the request, so that keys answer it; after the answer, or by r, they write
        again."""
        if self._shown is None:
            self._write()
            self.note("it asks nothing")
            return
        self._peeking = True
        self.note(self._hints(self._shown))
        self._answer_key()

    def _simple(
        self,
        verb: str,
        done: str,
        method: Callable[[Any], Any],
        request: type[Any],
        session: "Session | None" = None,
        after: "Worker[ClientError | None] | None" = None,
        **more: Any,
    ) -> None:
        """Run a call for a session, the selected one by default, once the work ``after`` has
        succeeded."""
        session = session or self._chosen()
        if session is None:
            return

        async def work() -> str:
            if after is not None and (failed := await after.wait()) is not None:
                raise ClientError(f"nothing sent: {failed.message}", hint="c has your text; C sends the others")
            answer = await self.call(method, request(session=session.id, request_id=new_request_id(), **more))
            warnings = "; ".join(getattr(answer, "warnings", ()))
            return f"{session.name}: {done}" + (f"; {warnings}" if warnings else "")

        self.do(f"{verb} {session.name}", work())

    def action_interrupt(self) -> None:
        self._simple(
            "interrupting",
            "interrupted",
            lambda daemon: daemon.sessions.InterruptSession,
            session_pb2.InterruptSessionRequest,
        )

    def action_pause(self) -> None:
        session = self._chosen()
        if session is None:
            return
        if session.state in {
            session_pb2.SESSION_STATE_PAUSED, session_pb2.SESSION_STATE_LOST, session_pb2.SESSION_STATE_FAILED,
        }:  # fmt: skip
            self._simple(
                "resuming", "resumed", lambda daemon: daemon.sessions.ResumeSession, session_pb2.ResumeSessionRequest
            )
        else:
            self._simple(
                "pausing",
                "paused; p resumes it",
                lambda daemon: daemon.sessions.PauseSession,
                session_pb2.PauseSessionRequest,
            )

    @property
    def _allowed(self) -> tuple[str, ...]:
        """Permission modes that the settings allow."""
        return allowed_modes(self.view.part(parts.SETTINGS).value if self.view is not None else None)

    def action_mode(self) -> None:
        session = self._chosen()
        if session is None:
            return
        modes = list(self._allowed)

        async def work(mode: str) -> str:
            request = session_pb2.UpdateSessionRequest(
                session_id=session.id, session=session_pb2.Session(mode=mode_number(mode)), request_id=new_request_id()
            )
            request.update_mask.paths.append("mode")
            await self.call(lambda daemon: daemon.sessions.UpdateSession, request)
            return f"{session.name}: mode {mode}"

        self.ask(
            Choose(f"Permission mode of {session.name} (now {mode_name(session.mode)})", modes),
            lambda number: self.do("changing the mode", work(modes[number])),
        )

    def action_fork(self) -> None:
        session = self._chosen()
        if session is not None:
            self.ask(
                Ask(f"Fork {session.name}. What is the copy to do?", does="fork"),
                lambda prompt: self._simple(
                    "forking",
                    "forked",
                    lambda daemon: daemon.sessions.ForkSession,
                    session_pb2.ForkSessionRequest,
                    session,  # the cursor may be on another one by now
                    prompt=prompt,
                ),
                ("f", session.id),
            )

    def action_new(self) -> None:
        entries = [
            Field("name", "name", "made from the prompt when empty"),
            Field("base", "base", "branch or commit; empty: what is checked out"),
            Field("agent", "agent", "empty: claude"),
            Field("model", "model", "empty: the agent's own"),
            Field("mode", "mode", ", ".join(self._allowed)),
            Field("budget", "budget", "dollars, or tokens as 2Mtok"),
            Field("owns", "owns", "paths, separated by blanks"),
            Field("count", "count", "", "1"),
        ]
        path = self._new_path()
        if path:
            self.ask(
                Form("New session: what should the agent do?", entries, prompt=""),
                lambda answer: self._create(path, answer),
                NEW,
            )

    def _new_path(self) -> str:
        """Return a path inside the repository for a new session: the current directory's, else the
        selected session's."""
        session = self.session
        path = self._repo_path or (session.worktree if session is not None else "")
        if not path:
            self.note("start rametctl inside a repository to create a session", error=True)
        return path

    def _create(self, path: str, answer: dict[str, str]) -> None:
        mode = answer["mode"]
        try:
            budget = budget_of(answer["budget"]) if answer["budget"] else {}
            contenders = int(answer["count"] or 1)
        except ValueError:
            problem = "budget: dollars, or tokens such as 2Mtok; count: a number"
        else:
            problem = (
                f"there is no mode {mode!r}; modes: {', '.join(self._allowed)}" if mode and mode not in MODES else ""
            )
        if problem:
            self._refused(ClientError(problem), self._answering)
            return
        base = session_pb2.CreateSessionRequest(
            path=path, prompt=answer["prompt"], name=answer["name"], base_ref=answer["base"], agent=answer["agent"],
            model=answer["model"], mode=mode_number(mode or None), **budget, owns=answer["owns"].split(),
            contenders=[answer["agent"]] * contenders if contenders > 1 else (), request_id=new_request_id(),
        )  # fmt: skip
        self._drafts[NEW] = {name: answer[name] for name in ("agent", "model", "mode")}

        async def work() -> str:
            made = await self.call(lambda daemon: daemon.sessions.CreateSession, base)
            if not self._engaged:
                self._jump(made.session.id)
            return f"created {', '.join(each.name for each in made.contenders or [made.session])}"

        self.do("creating the session", work())

    # Landing

    def action_land(self) -> None:
        session = self._chosen()
        if session is None:
            return
        base = session.base_ref or "its base"
        question = f"Land {session.name} on {base}? It is merged and checked first."
        uncommitted = self._uncommitted(session)
        if session.landed_reason and not uncommitted:  # as the daemon last judged; the person may have committed
            question = f"{session.name} is on {base} already. Land what you have committed since?"
        if uncommitted:
            question += f" It has uncommitted work: {uncommitted}. Message of the commit:"
        self.ask(
            Ask(question, does="land", text=_headline(session)) if uncommitted else Confirm(question),
            lambda text: self.do(f"landing {session.name}", self._land(session, text if uncommitted else "")),
            ("L", session.id) if uncommitted else None,
        )

    def _changed(self, session: "Session", against: str = "") -> "worktree_pb2.GetDiffResponse | None":
        """The files that a session changed; None if they are not known, as those of a session far
        from the cursor."""
        assert self.view is not None
        slot = self.view.part(parts.COUNTS, f"{session.id} {against}".strip())
        return None if slot.error else slot.value

    def _compare_again(self) -> None:
        """Read the changed files of the selected session again: the person may have edited or
        committed."""
        session, view = self.session, self.view
        if session is not None and view is not None:
            view.refresh(parts.COUNTS, session.id)
            view.refresh(parts.COUNTS, f"{session.id} {session.branch}")

    def _unchanged(self, session: "Session") -> bool:
        """Whether a session had nothing to land when its files were last compared. Its person may
        have edited them since, so this only hides a hint; the daemon refuses an empty landing."""
        changed = self._changed(session)
        return changed is not None and not changed.files and state_name(session) == "idle"

    def _uncommitted(self, session: "Session") -> str:
        """Name the files of a session that are not committed; "" for none, or if they are not
        known."""
        changed = self._changed(session, session.branch) if session.branch else None
        paths = [visible(each.path) for each in changed.files] if changed is not None else []
        return ", ".join(paths[:3]) + (f" and {len(paths) - 3} more" if len(paths) > 3 else "")

    async def _land(
        self, session: "Session", message: str = "", *, queued: Callable[[], Awaitable[str]] | None = None
    ) -> str:
        """Land a session, and call ``queued`` once the landing is accepted. Ask for what the daemon
        refuses to guess."""
        key = "L" if queued is None else "W"

        async def work(message: str, *, local: bool = False) -> str:
            request = landing_pb2.LandSessionsRequest(
                sessions=[session.id], commit_message=message, local=local, request_id=new_request_id()
            )
            try:
                answer = await self.call(lambda daemon: daemon.landing.LandSessions, request)
            except RefusedError as error:
                if error.data.get("files") and not message:
                    return self.ask_late(
                        Ask(f"{error.message}. Message of the commit:", does="land", text=_headline(session)),
                        lambda text: self.do("landing", work(text, local=local)),
                        f"{session.name} has uncommitted work",
                        key,
                        (key, session.id),
                    )
                if error.data.get("upstream") and not local:
                    return self.ask_late(
                        Confirm(f"{error.message}. Land on your local {error.data['branch']}? Nothing is pushed."),
                        lambda _: self.do(f"landing {session.name}", work(message, local=True)),
                        f"{error.data['branch']} has an upstream",
                        key,
                    )
                raise
            target = answer.landings[0].target if answer.landings else "its target"
            picked = f"{await queued()}; " if queued is not None else ""
            self.do(f"landing {session.name} on {target}", end(answer, target))
            return f"{picked}landing {session.name} on {target} …"

        async def end(answer: landing_pb2.LandSessionsResponse, target: str) -> str:
            request = landing_pb2.WaitLandingsRequest(landings=[each.id for each in answer.landings])
            waited = await self.call(lambda daemon: daemon.landing.WaitLandings, request)
            ended = waited.landings[0] if waited.landings else None
            if ended is not None and ended.state == landing_pb2.LANDING_STATE_LANDED:
                return f"{session.name} landed on {target}"
            raise ClientError(f"{session.name} did not land: {ended.reason if ended is not None else 'it was removed'}")

        return await work(message)

    def action_pick(self) -> None:
        """Pick the selected contender, with or without landing it; archive the others."""
        session, view = self._chosen(), self.view
        if session is None or view is None:
            return
        contenders, judges = members(view.sessions.values(), session.repo_id, session.contest)
        working = still_working(contenders)
        try:
            archives = archive_requests(session, contenders, judges, stop=True)
        except ClientError as error:
            self.note(f"{error.message}; {error.hint}", error=True)
            return

        async def archive() -> str:
            archived, warnings = await pick(self.call, archives)
            return "; ".join((picked_words(session, archived), *warnings))

        others = [view.sessions[each.session].name for each in archives]
        question = f"Pick {session.name}" + (f" and archive {', '.join(others)}" if others else "")
        if working:
            question += f". Still working, will be interrupted: {', '.join(each.name for each in working)}"

        def then(number: int) -> None:
            self.do(f"picking {session.name}", self._land(session, queued=archive) if number else archive())

        self.ask(Choose(question, ["pick it", f"pick it, and land it on {session.base_ref or 'its base'}"]), then)

    def action_pull_request(self) -> None:
        session = self._chosen()
        if session is None:
            return

        async def work() -> str:
            request = landing_pb2.CreatePullRequestRequest(session=session.id, request_id=new_request_id())
            answer = await self.call(lambda daemon: daemon.landing.CreatePullRequest, request)
            return f"{session.name}: {answer.action} {answer.pull_request.url}"

        self.ask(
            Confirm(f"Push {session.branch} and create or update its pull request?"),
            lambda _: self.do(f"pushing {session.name}", work()),
        )

    def action_against(self) -> None:
        now = panes.AGAINST.index(self._against) if self._against in panes.AGAINST else -1
        self._against = panes.AGAINST[(now + 1) % len(panes.AGAINST)]
        self._tab = "Diff"
        self._dirty = True

    def action_against_session(self) -> None:
        """Choose a session of the same repository whose files the diff starts from; those of the
        same plan or parent first."""
        session, view = self._chosen(live=False), self.view
        if session is None or view is None:
            return

        def distance(other: "Session") -> int:
            family = {session.id, session.parent_id} & {other.id, other.parent_id} - {""}
            return 0 if family or (session.plan_id and session.plan_id == other.plan_id) else 1

        others = [each for each in view.sessions.values() if each.repo_id == session.repo_id and each.id != session.id]
        others.sort(key=distance)
        if not others:
            self.note("there is no other session in this repository")
            return

        def then(number: int) -> None:
            self._against, self._sibling, self._tab = "sibling", others[number].id, "Diff"
            self._dirty = True

        self.ask(Choose(f"Diff of {session.name} against", [visible(each.name) for each in others]), then)

    def action_comment(self) -> None:
        session, cursor = self.session, self._content.cursor
        if session is None or self._tab != "Diff":
            self.note("open the tab Diff and put the cursor on a line")
            return
        place = self._places[cursor] if 0 <= cursor < len(self._places) else None
        if place is None:  # on a heading: take the next line of a file
            cursor = self._first_place()
            place = self._places[cursor] if cursor >= 0 else None
        if place is None:
            self.note("there is no line to comment on")
            return
        self.add_class("whole")
        self._content.move_to(cursor)

        async def work(text: str) -> str:
            request = worktree_pb2.AddCommentRequest(
                session=session.id, path=place.path, line=place.line, text=text, request_id=new_request_id()
            )
            await self.call(lambda daemon: daemon.worktrees.AddComment, request)
            return f"comment on {place.path}:{place.line}; C sends all comments"

        def then(text: str) -> None:
            self._commenting = self.do("adding the comment", work(text))

        draft = ("c", session.id, f"{place.path}:{place.line}")
        self.ask(Ask(f"Comment on {place.path}:{place.line}", does="add"), then, draft)

    def action_send_comments(self) -> None:
        """Send the comments once the newest is added. If it was refused, say so and send nothing:
        the next press sends the others."""
        after, self._commenting = self._commenting, None
        self._simple(
            "sending the comments to",
            "the comments are sent",
            lambda daemon: daemon.worktrees.SendComments,
            worktree_pb2.SendCommentsRequest,
            after=after,
        )

    def _rewind(self) -> None:
        session, view, cursor = self.session, self.view, self._content.cursor
        made = (view.part(parts.CHECKPOINTS, self._selected).value or []) if view is not None else []
        if session is None or not 0 <= cursor < len(made):
            return
        checkpoint = made[cursor]

        async def back() -> str:
            request = worktree_pb2.RewindSessionRequest(
                session=session.id, checkpoint=checkpoint.id, request_id=new_request_id()
            )
            answer = await self.call(lambda daemon: daemon.worktrees.RewindSession, request)
            return f"{session.name} is back at {checkpoint.number}, {plural(len(answer.files), 'file')} changed; checkpoint {answer.before.number} undoes this"

        async def preview() -> str:
            request = worktree_pb2.GetDiffRequest(session=session.id, against=checkpoint.id, stat_only=True)
            answer = await self.call(lambda daemon: daemon.worktrees.GetDiff, request)
            files = [
                line(each.path, (f"  +{each.additions} −{each.deletions}", "dim"), indent=2) for each in answer.files
            ]
            return self.ask_late(
                Confirm(
                    f"Rewind {session.name} to checkpoint {checkpoint.number}? Files and conversation are restored; the present state becomes a checkpoint. "
                    + (f"{plural(len(files), 'file')} changed since:" if files else "No file has changed since."),
                    files[:20],
                ),
                lambda _: self.do("rewinding", back()),
                f"{plural(len(files), 'file')} changed since checkpoint {checkpoint.number} of {session.name}",
                "enter on it",
            )

        self.do("comparing", preview())

    def action_archive(self) -> None:
        session = self._chosen()
        if session is None:
            return

        async def work() -> str:
            request = session_pb2.ArchiveSessionRequest(
                session=session.id, force=at_work(session), request_id=new_request_id()
            )
            await self.call(lambda daemon: daemon.sessions.ArchiveSession, request)
            self._undo.append(("archive", session.id))
            return f"{session.name} is archived; u restores it"

        if at_work(session):
            question = f"{session.name} is {state_name(session)}. End its turn and archive it? u restores it."
            self.ask(Confirm(question), lambda _: self.do(f"archiving {session.name}", work()))
        else:
            self.do(f"archiving {session.name}", work())

    def action_remove(self) -> None:
        session = self._chosen(live=False)
        if session is None:
            return
        changed = self._changed(session)
        lost = "" if changed is None or not changed.files or session.landed_reason else _extent(changed)

        async def work(*, force: bool = False) -> str:
            request = session_pb2.DeleteSessionRequest(session=session.id, force=force, request_id=new_request_id())
            if working and not force:
                stop = session_pb2.StopSessionRequest(session=session.id, request_id=new_request_id())
                await self.call(lambda daemon: daemon.sessions.StopSession, stop)
            try:
                await self.call(lambda daemon: daemon.sessions.DeleteSession, request)
            except RefusedError as error:
                if error.reason != "WORK_AT_RISK" or force:
                    raise
                if lost and _holds_only_changes(error):
                    return await work(force=True)
                return self.ask_late(
                    Confirm(f"{error.message}. Remove {session.name} all the same? u restores it."),
                    lambda _: self.do(f"removing {session.name}", work(force=True)),
                    f"{session.name} holds work that exists nowhere else",
                    "x",
                )
            self._undo.append(("trash", session.id))
            return f"removed {session.name}; u restores it"

        working = at_work(session)
        first = f"{session.name} is {state_name(session)}: its turn ends. " if working else ""
        work_lost = f", and with its work that has not landed: {lost}" if lost else ""
        self.ask(
            Confirm(f"{first}Remove {session.name} with its worktree and branch{work_lost}? u restores it."),
            lambda _: self.do(f"removing {session.name}", work()),
        )

    def action_undo(self) -> None:
        under_way = next(
            (words for words in self._busy if words.startswith(("archiving", "removing", "restoring"))), ""
        )
        if under_way or not self._undo:
            self.note(f"{under_way} is under way; u undoes it afterwards" if under_way else "nothing to undo")
            return
        entry = kind, session_id = self._undo[-1]

        async def work() -> str:
            if kind == "archive":
                restore = session_pb2.RestoreSessionRequest(session=session_id, request_id=new_request_id())
                name = (await self.call(lambda daemon: daemon.sessions.RestoreSession, restore)).session.name
            else:
                trashed = worktree_pb2.RestoreTrashRequest(entry=session_id, request_id=new_request_id())
                name = (await self.call(lambda daemon: daemon.worktrees.RestoreTrash, trashed)).session.name
            self._undo.remove(entry)
            if not self._engaged:
                self._jump(session_id)
            return f"{name} is back"

        self.do("restoring", work())

    # Programs of the person

    @contextmanager
    def _terminal_released(self) -> Iterator[None]:
        """Lend the terminal to another program. Only that gets Ctrl-C; keys that it has not read
        are dropped."""
        with self.suspend():
            before = signal.signal(signal.SIGINT, lambda *_: None)  # unlike SIG_IGN, not inherited
            try:
                yield
            finally:
                signal.signal(signal.SIGINT, before)
                termios.tcflush(sys.stdin, termios.TCIFLUSH)

    def _outside(self, *command: str, cwd: str | None = None, pause: bool = False) -> int:
        """Run a program on the terminal; return its exit code."""
        status = 1
        with self._terminal_released():
            try:
                status = subprocess.run(command, cwd=cwd, check=False).returncode
                if pause:
                    input("\nEnter returns to the dashboard ")
            except (OSError, EOFError) as error:
                self.call_later(self.note, f"{command[0]}: {error}", error=True)
        self._compare_again()
        return status

    def _verb(self, *arguments: str, pause: bool = False) -> int:
        return self._outside(sys.executable, "-m", "rametctl", *arguments, pause=pause)

    def action_shell(self) -> None:
        if (session := self._chosen()) is not None:
            self._verb("shell", session.id)

    def action_run(self) -> None:
        session = self._chosen()
        if session is None:
            return
        draft = ("!", session.id)

        def then(text: str) -> None:
            if status := self._verb("run", session.id, "--", "sh", "-c", text, pause=True):
                self._drafts[draft] = text
                self.note(f"the command exited with {status}; ! has your text")

        self.ask(Ask(f"Run in {session.name}:", does="run"), then, draft)

    def action_open(self) -> None:
        if (session := self._chosen()) is not None:
            self._outside(*shlex.split(editor_command(self.client)), session.worktree, cwd=session.worktree)

    # The rest of the screen

    def action_redraw(self) -> None:
        """Draw everything again, for example after another program wrote on the terminal."""
        self.refresh(layout=True)

    def action_help(self) -> None:
        self.push_screen(Help())

    def get_system_commands(self, screen: Screen[Any]) -> "Iterable[SystemCommand]":
        """List every action that has a key, by its description."""
        for keys in GROUPS.values():
            for key in keys:
                if "(" not in key.action and key.action not in {"command_palette", "choose", "enter", "leave"}:
                    yield SystemCommand(
                        f"{key.words}  [{key.label}]".replace("[", "(").replace("]", ")"),
                        "",
                        getattr(self, f"action_{key.action}"),
                    )


def _headline(session: "Session") -> str:
    """The first line that the agent said last, as the message of a commit."""
    return unbold(session.now.partition("\n")[0])


def _extent(changed: "worktree_pb2.GetDiffResponse") -> str:
    return f"{plural(len(changed.files), 'file')}, +{changed.additions} −{changed.deletions}"


def _holds_only_changes(error: RefusedError) -> bool:
    """Whether work at risk is only changes and commits: a count of changed files names these, but
    no nested repository, no file that git cannot store, and no worktree that cannot be checked."""
    held = {kind for kind, listed in error.data.items() if listed}
    return bool(held) and held <= {"uncommitted", "untracked", "commits"}


def _failed(error: str, width: int) -> list[Line]:
    return wrapped(line((error, "red")), width) if error else []
