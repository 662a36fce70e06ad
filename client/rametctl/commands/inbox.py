"""`rametctl inbox`: list open requests."""

import time
from collections.abc import Iterable, Iterator, Sequence

import click
from ramet.v1.attention_pb2 import AttentionRequest
from ramet.words import plural

from rametctl.app import App
from rametctl.connection.follow import follow
from rametctl.console.lines import Line, line
from rametctl.errors import ClientError, RefusedError
from rametctl.nouns.requests import by_urgency, get_request, open_requests, remember
from rametctl.nouns.sessions import get_session
from rametctl.options import Verb, complete_asking
from rametctl.render.inbox import inbox_lines
from rametctl.render.request import request_lines, short_id, shown_decision, title


@click.command("inbox", cls=Verb, short_help="List requests that wait for your answer.")
@click.argument("requests", metavar="[REQUEST]...", nargs=-1, shell_complete=complete_asking)
@click.option("--full", is_flag=True, help="Show all requests in full, on a terminal in a pager.")
@click.option("-w", "--watch", is_flag=True, help="Follow until Ctrl-C.")
@click.pass_obj
def command(app: App, requests: tuple[str, ...], full: bool, watch: bool) -> None:
    """List the open requests of all repositories, one per line: first those that block work, then
    finished turns, each oldest first. With REQUEST (an id, the beginning of one, or a session),
    show it in full: the command, the edit as a diff, the choices, the rules that --always would
    store, and the command that answers. Without a terminal, all requests are shown in full.
    Requests never expire.

    \b
    Examples:
      rametctl inbox
      rametctl inbox fix-login
      rametctl inbox --json | jq -r '.[].id'
    """
    if watch:
        _watch(app)
        return
    blocking, reviews = by_urgency(open_requests(app.connection))
    waiting = blocking + reviews
    if requests:
        waiting = _named(app, waiting, requests)
        blocking, reviews = by_urgency(waiting)
    app.output.json(waiting)
    if not waiting:
        app.output.text("nothing waits for you")
    elif requests or full or not app.output.terminal:
        lines = list(_in_full(blocking, reviews))
        if full:
            app.output.page(app.output.fitted(lines))
        else:
            app.output.show(*lines)
        remember(app, waiting)
    else:
        _show_table(app, blocking, reviews)


def _show_table(app: App, blocking: "Sequence[AttentionRequest]", reviews: "Sequence[AttentionRequest]") -> None:
    """Show one line for each request; of the reviews only as many as the screen has lines."""
    room = max(app.output.height - len(blocking) - 4, 3)
    app.output.show(*inbox_lines(app.output, blocking, reviews, time.time(), room=room))
    remember(app, [*blocking, *reviews[:room]])


def _named(app: App, waiting: "Sequence[AttentionRequest]", names: Sequence[str]) -> "list[AttentionRequest]":
    """Return the requests with these ids, and all of these sessions. Raise ClientError for a
    session without any."""
    found: dict[str, AttentionRequest] = {}
    for name in names:
        of_it = [request for request in waiting if request.id.startswith(name)]
        if len(of_it) != 1:
            try:
                session = get_session(app, name).session
            except RefusedError:
                of_it = [get_request(app, name)]
            else:
                of_it = [request for request in waiting if request.session_id == session.id]
                if not of_it:
                    raise ClientError(f"nothing of {session.name} waits for you", hint="see: rametctl inbox")
        found.update((request.id, request) for request in of_it)
    return list(found.values())


def _in_full(blocking: "Sequence[AttentionRequest]", reviews: "Sequence[AttentionRequest]") -> "Iterator[Line]":
    waiting = [*blocking, *reviews]
    headings = {0: f"waits for your answer: {plural(len(blocking), 'request')}"} if blocking else {}
    if reviews:
        headings[len(blocking)] = f"to look at: {plural(len(reviews), 'finished turn')}"
    for index, request in enumerate(waiting):
        if index:
            yield line("")
        if index in headings:
            yield line((headings[index], "bold"))
            yield line("")
        yield from request_lines(request, time.time(), waiting)


def _watch(app: App) -> None:
    """Print the open requests, on a terminal as a table, then new ones in full, and answers."""
    # Read the log's end before the list. A request that opens in between is in both; its id shows
    # that.
    cursor = app.connection.info().cursor
    shown: set[str] = set()
    _show_open(app, shown)
    if not shown:
        app.output.hint("nothing waits for you yet; Ctrl-C ends the command")
    for step in follow(app.connection, after=cursor):
        if step.event is None:
            if step.item.HasField("snapshot"):  # of a new log
                _show_open(app, shown)
        elif step.event.HasField("request_opened"):
            request = step.event.request_opened.request
            if request.id not in shown:
                shown.add(request.id)
                _show(app, request, request_lines(request, time.time()))
                remember(app, [request])
        elif step.event.HasField("request_closed"):
            request = step.event.request_closed.request
            name = request.session_name or request.session_id
            words = f"{short_id(request)}  {name}  {title(request)}  {shown_decision(request)}"
            _show(app, request, [line((words, "dim"))])


def _show_open(app: App, shown: set[str]) -> None:
    """Print the open requests that are not among the ``shown``, and add them."""
    fresh = [request for request in open_requests(app.connection) if request.id not in shown]
    blocking, reviews = by_urgency(fresh)
    shown.update(request.id for request in fresh)
    if fresh and app.output.terminal:
        _show_table(app, blocking, reviews)
        return
    for request in [*blocking, *reviews]:
        _show(app, request, request_lines(request, time.time(), fresh))


def _show(app: App, request: "AttentionRequest", lines: "Iterable[Line]") -> None:
    app.output.answer(request, lines, stream=True)
