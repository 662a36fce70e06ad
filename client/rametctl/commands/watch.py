"""`rametctl watch`: show a live transcript."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from rametctl.app import App
from rametctl.options import Verb, sessions_argument

if TYPE_CHECKING:
    from ramet.v1.common_pb2 import Cursor
    from ramet.v1.event_pb2 import Event, WatchEventsResponse

    from rametctl.render.transcript import Transcript

CONTEXT = 300
"""Events looked back through for the beginning of the last turn."""


@click.command("watch", cls=Verb, short_help="Show a live transcript of sessions.")
@sessions_argument(required=False)
@click.option("--since", metavar="CURSOR", help='Continue from the "cursor" of an earlier --json line.')
@click.pass_obj
def command(app: App, sessions: tuple[str, ...], since: str | None) -> None:
    """Watch what the agents of SESSION... say and do (default: all sessions).

    Begins with the last turn of each SESSION and continues until Ctrl-C, over
    restarts of the daemon. --json prints one event per line; its "cursor" is
    EPOCH:SEQ, from which --since continues without a gap.

    \b
    Examples:
      rametctl watch fix-login
      rametctl watch
      rametctl watch --json --since 0b5c:812 | jq -r .payload
    """
    from rametctl.follow import parse_cursor

    watch_sessions(app, sessions, parse_cursor(since) if since else None)


def watch_sessions(app: App, sessions: Sequence[str], since: "Cursor | None" = None) -> None:
    """Print what happens, until interrupted."""
    from rametctl.follow import follow
    from rametctl.render.transcript import Transcript
    from rametctl.sessions import get_session, session_pages

    names: dict[str, str] = {}
    if sessions:
        found = [get_session(app, session).session for session in sessions]
        names.update((session.id, session.name) for session in found)
    else:
        for page in session_pages(app.connection, repo="", archived=True):
            names.update((session.id, session.name) for session in page.sessions)
    watched = list(dict.fromkeys(names)) if sessions else []
    printer = _Printer(app, names, Transcript(names, prefixed=len(watched) != 1))
    after = since
    shown: dict[str, int] = {}
    if since is None and watched:
        after, shown = _context(app, watched, printer)
    for item in follow(app.connection, sessions=watched, after=after):
        if item.HasField("event") and item.event.seq <= shown.get(item.event.session_id, 0):
            continue
        if item.HasField("reset"):
            shown = {}
        printer.step(item)


def _context(app: App, watched: Sequence[str], printer: "_Printer") -> tuple["Cursor | None", dict[str, int]]:
    """Print the last turns so far; returns where to watch from, and for each session the last event that was printed."""
    from ramet.v1 import common_pb2, event_pb2

    events: list[Event] = []
    shown: dict[str, int] = {}
    epoch = app.connection.info().cursor.epoch
    for session in watched:
        request = event_pb2.ListEventsRequest(session=session, page_size=CONTEXT, newest=True)
        page = app.connection.call(lambda daemon: daemon.events.ListEvents, request)
        events += last_turn(page.events)
        shown[session] = page.events[-1].seq if page.events else 0
    for event in sorted(events, key=lambda event: event.seq):
        printer.event(event, f"{epoch}:{event.seq}")
    # The earliest of the ends: what the others have shown beyond it comes again, and is told by its number.
    return common_pb2.Cursor(epoch=epoch, seq=min(shown.values())), shown


def last_turn(events: Sequence["Event"]) -> list["Event"]:
    """The events from the beginning of the newest turn, with the prompt that made it; all where none is seen to begin."""
    for index in range(len(events) - 1, -1, -1):
        if events[index].HasField("prompt_queued"):
            return list(events[index:])
    for index in range(len(events) - 1, -1, -1):
        if events[index].HasField("turn_started"):
            return list(events[index:])
    return list(events)


class _Printer:
    """Prints events as they come, and learns the names of sessions from them."""

    def __init__(self, app: App, names: dict[str, str], transcript: "Transcript") -> None:
        self._output = app.output
        self._names = names
        self._transcript = transcript

    def step(self, item: "WatchEventsResponse") -> None:
        if item.HasField("event"):
            self.event(item.event, f"{item.cursor.epoch}:{item.cursor.seq}")
        elif item.HasField("snapshot"):
            self._names.update((session.id, session.name) for session in item.snapshot.sessions)
        elif item.HasField("reset"):
            if self._output.json_mode:
                cursor = f"{item.cursor.epoch or item.reset.epoch}:{item.cursor.seq}"
                self._output.json({"payload": "reset", "epoch": item.reset.epoch, "cursor": cursor}, stream=True)
            else:
                self._output.note("rametctl: the daemon has a new event log; continuing from its present state")

    def event(self, event: "Event", cursor: str) -> None:
        if event.HasField("session_created"):
            self._names[event.session_id] = event.session_created.session.name
        elif event.HasField("session_updated"):
            self._names[event.session_id] = event.session_updated.session.name
        if self._output.json_mode:
            from ramet.jsonify import to_json

            self._output.json(
                {**to_json(event), "session": self._names.get(event.session_id), "cursor": cursor}, stream=True
            )
        else:
            self._output.show(*self._transcript.lines(event))
