"""`rametctl inbox`: list open requests."""

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import click
from ramet.v1 import attention_pb2
from ramet.v1.attention_pb2 import AttentionRequest
from ramet.words import plural

from rametctl.app import App
from rametctl.errors import ClientError, RefusedError
from rametctl.lines import Line, line
from rametctl.options import Verb, complete_asking
from rametctl.render.inbox import inbox_lines
from rametctl.render.request import request_lines, short_id, shown_decision, title
from rametctl.requests import by_urgency, get_request, open_requests, remember
from rametctl.sessions import get_session

if TYPE_CHECKING:
    from rametctl.view.model import View

PAUSE_S = 0.1
"""Least seconds between two looks of `--watch`."""


@click.command("inbox", cls=Verb, short_help="List what waits for your answer.")
@click.argument("requests", metavar="[REQUEST]...", nargs=-1, shell_complete=complete_asking)
@click.option("--full", is_flag=True, help="Show everything in full; paged on a terminal.")
@click.option("-w", "--watch", is_flag=True, help="Follow until Ctrl-C.")
@click.pass_obj
def command(app: App, requests: tuple[str, ...], full: bool, watch: bool) -> None:
    """List the open requests of all repositories, one line each, first those that block
    work, then finished turns; the oldest first. REQUEST (an id, the beginning of one,
    or a session) shows it in full: the command, the edit as a diff, the choices, the
    rules that --always would store, and the command that answers. Away from a
    terminal everything is shown in full. Requests never expire.

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
        room = max(app.output.height - len(blocking) - 4, 3)
        app.output.show(*inbox_lines(app.output, blocking, reviews, time.time(), room=room))
        remember(app, [*blocking, *reviews[:room]])


def _named(app: App, waiting: "Sequence[AttentionRequest]", names: Sequence[str]) -> "list[AttentionRequest]":
    """Return the requests with these ids, and all of these sessions. Raise ClientError for a session without any."""
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
    """Print the open requests, then new ones and answers."""
    from rametctl.view import parts
    from rametctl.view.live import draw

    known: set[str] = set()

    async def paint(view: "View") -> None:
        view.want([(parts.REQUESTS, "")])
        listed = view.part(parts.REQUESTS).value
        if listed is None:
            return
        blocking, reviews = by_urgency(listed)
        waiting = [*blocking, *reviews]
        for request in waiting:
            if request.id not in known:
                known.add(request.id)
                _show(app, request, request_lines(request, time.time(), waiting))
        for closed in sorted(known - {request.id for request in waiting}):
            known.discard(closed)
            answered = await _closed(view, closed)
            if answered is not None:
                name = answered.session_name or answered.session_id
                words = f"{short_id(answered)}  {name}  {title(answered)}  {shown_decision(answered)}"
                _show(app, answered, [line((words, "dim"))])

    draw(app, paint, every=PAUSE_S)


async def _closed(view: "View", request_id: str) -> "AttentionRequest | None":
    """Return a request that is not open any more; None if its session is gone."""
    request = attention_pb2.GetRequestRequest(request=request_id)
    try:
        return (await view.link.call(lambda daemon: daemon.attention.GetRequest, request)).request
    except RefusedError:
        return None


def _show(app: App, request: "AttentionRequest", lines: "Iterable[Line]") -> None:
    app.output.answer(request, lines, stream=True)
