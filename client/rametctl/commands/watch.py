"""`rametctl watch`: follow conversations live."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click
from ramet.jsonify import to_json
from ramet.v1 import event_pb2
from ramet.v1.common_pb2 import Cursor
from ramet.v1.event_pb2 import Event
from ramet.v1.session_pb2 import Session

from rametctl.alerts import inbox_alerts
from rametctl.app import App
from rametctl.connection.follow import Step, follow, parse_cursor
from rametctl.console.output import Foot
from rametctl.errors import UsageError
from rametctl.nouns.requests import remember
from rametctl.nouns.sessions import get_session, session_pages
from rametctl.nouns.transcripts import Printer, count_line, read_turns, resting_line
from rametctl.options import Verb, sessions_argument
from rametctl.render.session import by_urgency, left_out, state_name
from rametctl.render.transcript import Conversation, Entry, open_requests

if TYPE_CHECKING:
    from rametctl.view.model import View

TICK_S = 1.0
"""Seconds between redraws without events: the footer shows seconds."""
LEAST_S = 0.08
"""Minimum number of seconds between two redraws."""
GLANCE = 12
"""Maximum number of sessions to show with their last lines if none is named; it counts the
others."""
GLANCE_EVENTS = 60
GLANCE_ENTRIES = 3


@click.command("watch", cls=Verb, short_help="Follow conversations live.")
@sessions_argument(required=False)
@click.option("--turns", type=click.IntRange(min=1), metavar="N", help="Begin with the newest N turns.")
@click.option("-a", "--all", "every", is_flag=True, help="Begin with the first turn.")
@click.option("--full", is_flag=True, help="Show results and thinking in full.")
@click.option("--since", metavar="CURSOR", help='Continue from the "cursor" of an earlier --json line.')
@click.pass_obj
def command(app: App, sessions: tuple[str, ...], turns: int | None, every: bool, full: bool, since: str | None) -> None:
    """Watch what the agents of SESSION... say and do (default: all sessions).

    Begins with the running or last turn of each SESSION and its open request; without SESSION, with
    the last lines and open requests of every live session. Continues until Ctrl-C, over restarts of
    the daemon. --json prints one event per line, with a "cursor" EPOCH:SEQ, from which --since
    continues without a gap.

    \b
    Examples:
      rametctl watch fix-login
      rametctl watch
      rametctl watch --json --since 0b5c:812 | jq -r .payload
    """
    if (turns or every) and not sessions:
        raise UsageError("--turns and --all need a session", hint="name one: rametctl watch SESSION --all")
    if turns and every:
        raise UsageError("--turns and --all were both given", hint="omit one of them")
    count = None if every else turns or 1
    watch_sessions(app, sessions, parse_cursor(since) if since else None, turns=count, full=full)


def watch_sessions(
    app: App, sessions: Sequence[str], since: "Cursor | None" = None, *, turns: int | None = 1, full: bool = False
) -> None:
    """Print events until interrupted. Begin with the newest ``turns`` turns, None for the first."""
    # The first answer has the oldest cursor: sessions of later ones have events after it already.
    if sessions:
        answers = [get_session(app, session) for session in sessions]
        shown, cursor = list({each.session.id: each.session for each in answers}.values()), answers[0].cursor
    else:
        pages = list(session_pages(app.connection, repo="", archived=True))
        shown, cursor = [each for page in pages for each in page.sessions], pages[0].cursor
    watch = _Json(app, shown) if app.output.json_mode else _Screen(app, shown, several=len(sessions) != 1, full=full)
    if since is None:
        since = watch.begin(cursor, turns=turns) if sessions else watch.glance(cursor)
    watch.follow(sessions=[each.id for each in shown] if sessions else [], after=since, now=cursor)


class _Watch:
    """Base of both watches, for people and for programs: finds the beginning, and shows each event
    once."""

    def __init__(self, app: App, sessions: "Sequence[Session]") -> None:
        self._app = app
        self._sessions = sessions
        self.names = {session.id: session.name for session in sessions}
        self._shown: dict[str, int] = {}
        """Number of the last event that was read, by session."""
        self._since = 0
        """Number of the last event before the watch: earlier events of a restored session are not
        shown."""

    def is_new(self, event: "Event") -> bool:
        return event.seq > self._shown.get(event.session_id, self._since)

    def read(self, session: "Session", turns: int | None) -> "list[Event]":
        events, self._shown[session.id] = read_turns(self._app, session, turns)
        return events


class _Json(_Watch):
    """Prints one event per line."""

    def begin(self, cursor: "Cursor", *, turns: int | None) -> "Cursor":
        events: list[Event] = []
        for session in self._sessions:
            read = self.read(session, turns)
            conversation = Conversation()
            for event in read:
                conversation.add(event)
            first = conversation.turns(turns)[:1] if turns is not None else []
            events += [event for event in read if not first or event.seq >= first[0].seq]
        for event in sorted(events, key=lambda event: event.seq):
            self._print(event, f"{cursor.epoch}:{event.seq}")
        return cursor

    def glance(self, cursor: "Cursor") -> "Cursor":
        return cursor

    def follow(self, *, sessions: Sequence[str], after: "Cursor", now: "Cursor") -> None:
        for step in follow(self._app.connection, sessions=sessions, after=after):
            self._learn(step)
            cursor = f"{step.epoch}:{step.seq}"
            if step.is_reset:
                reset = {"payload": "reset", "epoch": step.item.reset.epoch, "cursor": cursor}
                self._app.output.json(reset, stream=True)
            elif step.event is not None and self.is_new(step.event):
                self._print(step.event, cursor)

    def _learn(self, step: "Step") -> None:
        """Learn names of sessions, and handle a new log."""
        if step.event is None:
            self.names.update((session.id, session.name) for session in step.item.snapshot.sessions)
            if step.is_reset:
                self._shown = {}
        elif step.event.HasField("session_created"):
            self.names[step.event.session_id] = step.event.session_created.session.name
        elif step.event.HasField("session_updated"):
            self.names[step.event.session_id] = step.event.session_updated.session.name

    def _print(self, event: "Event", cursor: str) -> None:
        line = {**to_json(event), "session": self.names.get(event.session_id), "cursor": cursor}
        self._app.output.json(line, stream=True)


class _Screen(_Watch):
    """Prints conversations for a person."""

    def __init__(self, app: App, sessions: "Sequence[Session]", *, several: bool, full: bool) -> None:
        super().__init__(app, sessions)
        self._foot = Foot(app.output) if app.output.terminal else None
        self._printer: Printer = Printer(app.output, self.names, several=several, folded=not full, foot=self._foot)

    def begin(self, cursor: "Cursor", *, turns: int | None) -> "Cursor":
        for session in self._sessions:
            conversation = self._printer.conversation(session.id, session.worktree)
            for event in self.read(session, turns):
                conversation.add(event)
            entries = conversation.entries if turns is None else conversation.turns(turns)
            if entries:
                self._begin(session.id, entries)
            elif self._foot is None:  # the foot shows the state
                self._printer.say(resting_line(session))
        return cursor

    def _begin(self, session_id: str, entries: "Sequence[Entry]") -> None:
        """Print stored entries, and note the requests among them as shown."""
        remember(self._app, open_requests(entries))
        self._printer.begin(session_id, entries)

    def glance(self, cursor: "Cursor") -> "Cursor":
        """Print the state of each live session, those that need a person last: they stay on the
        screen."""
        live = [each for each in by_urgency(self._sessions) if state_name(each) != "archived"]
        if len(live) > GLANCE:
            self._printer.say(left_out(live[GLANCE:]))
        for session in reversed(live[:GLANCE]):
            if state_name(session) in {"idle", "paused"} and not session.attention:
                self._printer.say(resting_line(session))
            else:
                self._glance_at(session)
        # The footer counts the waiting ones.
        self._printer.say(count_line(live, waiting=self._foot is None))
        return cursor

    def _glance_at(self, session: "Session") -> None:
        """Print the last lines of a session, and its open requests."""
        request = event_pb2.ListEventsRequest(
            session=session.id, page_size=GLANCE_EVENTS, newest=True, omit_partials=True
        )
        page = self._app.call(lambda daemon: daemon.events.ListEvents, request)
        conversation = self._printer.conversation(session.id, session.worktree)
        for event in page.events:
            conversation.add(event)
            self._shown[session.id] = event.seq
        waiting = [each for each in conversation.entries if getattr(each, "waits", False)]
        last = [each for each in conversation.entries[-GLANCE_ENTRIES:] if each not in waiting]
        self._begin(session.id, [*last, *waiting])

    def follow(self, *, sessions: Sequence[str], after: "Cursor", now: "Cursor") -> None:
        from rametctl.view.live import draw

        alerts = inbox_alerts(self._app, now.seq)
        self._since = after.seq
        snapshots = 0

        async def paint(view: "View") -> None:
            nonlocal snapshots
            if view.snapshots != snapshots:
                snapshots, self._shown, self._since = view.snapshots, {}, 0
                alerts.begin_again()
                self._app.output.note("rametctl: the daemon has a new event log; continuing from its present state")
            self.names.update((each.id, each.name) for each in view.sessions.values())
            alerts.count(each for each in view.sessions.values() if not sessions or each.id in sessions)
            view.want((), sessions or self.names)
            fresh = [event for each in view.transcripts.values() for event in each.take()]
            for event in sorted(fresh, key=lambda event: event.seq):
                if self.is_new(event):
                    self._add(event)
                    alerts.add(event)
            self._printer.draw()

        try:
            draw(self._app, paint, every=LEAST_S, tick=TICK_S, after=after, sessions=self._sessions)
        finally:
            alerts.close()
            self._printer.leave()

    def _add(self, event: "Event") -> None:
        self._printer.add(event)
        if event.HasField("request_opened"):
            remember(self._app, [event.request_opened.request])
