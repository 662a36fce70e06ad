"""`rametctl events`: show a session's events."""

from collections import deque

import click
from ramet.jsonify import to_json
from ramet.v1 import event_pb2
from ramet.v1.common_pb2 import Cursor
from ramet.v1.event_pb2 import Event
from ramet.v1.session_pb2 import Session

from rametctl.app import App
from rametctl.connection.follow import follow as follow_events
from rametctl.errors import UsageError
from rametctl.nouns.sessions import get_session, session_name
from rametctl.options import Verb, session_argument
from rametctl.render.event import PROTOCOL, summary

PAGE = 200
PAGE_OF_FRAMES = 50
"""Maximum number of events per page: a message has a limit, and a tool's answer may be long."""


@click.command("events", cls=Verb, short_help="Show a session's events.")
@session_argument
@click.option("-f", "--follow", is_flag=True, help="Follow until Ctrl-C.")
@click.option("--raw", is_flag=True, help="Show only the agent's own output lines, unchanged.")
@click.option("--audit", is_flag=True, help="Show only actions: prompts, answers, changes, refusals.")
@click.option("-n", "--lines", type=click.IntRange(min=1), metavar="N", help="Show only the newest N.")
@click.pass_obj
def command(app: App, session: str, follow: bool, raw: bool, audit: bool, lines: int | None) -> None:
    """Show the events of SESSION, one per line, oldest first.

    Protocol messages of the agent's program (control_line, agent_notice) and pieces
    of messages (partial) are omitted; --json includes them. --json prints the events as one array,
    with --follow one per line. --audit adds the actor to each line: you (owner), a
    session, or the daemon.

    \b
    Examples:
      rametctl events fix-login -n 20
      rametctl events fix-login --audit
      rametctl events fix-login --raw | jq -r .type
    """
    if follow and audit:
        raise UsageError("--follow and --audit were both given", hint="omit one of them")
    # Use the id: the session may be renamed meanwhile.
    found = get_session(app, session).session if follow or audit else Session(id=session_name(app, session))
    printer = _Printer(app, found, raw=raw, stream=follow, audit=audit)
    cursor = _print_stored(app, found.id, printer, frames=raw, audit=audit, newest=lines)
    if not follow:
        printer.finish()
        return
    for step in follow_events(app.connection, sessions=[found.id], after=cursor, include_frames=raw):
        if step.event is not None and printer.shows(step.event):
            printer.print(step.event)


def _print_stored(
    app: App, session_id: str, printer: "_Printer", *, frames: bool, audit: bool, newest: int | None
) -> "Cursor":
    """Print the stored events; return the end of the log. ``newest`` may be more than a page."""
    kept: deque[Event] = deque(maxlen=newest)
    size = PAGE_OF_FRAMES if frames else PAGE
    request = event_pb2.ListEventsRequest(
        session=session_id, page_size=size, include_frames=frames, audit=audit, newest=newest is not None
    )
    while True:
        page = app.call(lambda daemon: daemon.events.ListEvents, request)
        kept.extend(event for event in page.events if printer.shows(event))
        token = page.next_page_token
        if request.newest:
            if len(kept) == newest or (len(page.events) < size and not token):
                token = ""
            else:
                # Too few among the newest events, so read all from the first on.
                kept.clear()
                request.newest = False
                continue
        request.page_token = token
        if newest is None or not token:
            for event in kept:
                printer.print(event)
            kept.clear()
        if not token:
            return page.cursor


class _Printer:
    """Prints events in the requested format."""

    def __init__(self, app: App, session: "Session", *, raw: bool, stream: bool, audit: bool) -> None:
        self._app = app
        self._session = session
        self._raw = raw
        self._audit = audit
        self._list: list[object] | None = [] if app.output.json_mode and not stream else None

    def shows(self, event: "Event") -> bool:
        if self._raw:
            return bool(event.frame)
        return self._app.output.json_mode or event.WhichOneof("payload") not in PROTOCOL

    def print(self, event: "Event") -> None:
        output = self._app.output
        if self._list is not None:
            self._list.append(to_json(event))
        elif output.json_mode:
            output.json(to_json(event), stream=True)
        elif self._raw:
            output.raw(event.frame.decode("utf-8", "replace").rstrip("\n"))  # an agent's lines are UTF-8
        else:
            output.show(summary(event, self._who(event.principal) if self._audit else ""))

    def _who(self, principal: str) -> str:
        """Return "owner", "daemon", "session:NAME" for this session, or "session:ID" for another
        one."""
        own = f"session:{self._session.id}"
        return f"session:{self._session.name}" if principal == own else principal or "daemon"

    def finish(self) -> None:
        if self._list is not None:
            self._app.output.json(self._list)
