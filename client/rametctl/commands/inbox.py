"""`rametctl inbox`: list open requests."""

import time

import click

from rametctl.app import App
from rametctl.options import Verb


@click.command("inbox", cls=Verb, short_help="List what waits for your answer.")
@click.option("-w", "--watch", is_flag=True, help="Follow until Ctrl-C.")
@click.pass_obj
def command(app: App, watch: bool) -> None:
    """List the open requests of all repositories: commands in full, edits as diffs,
    questions with their choices, and plans, each with the command that answers it.
    Requests that block work come first, then finished turns to review; the oldest
    first. Requests never expire.

    \b
    Examples:
      rametctl inbox
      rametctl inbox --json | jq -r '.[].id'
    """
    from ramet.jsonify import to_json

    from rametctl.requests import by_urgency, open_requests

    if watch:
        _watch(app)
        return
    blocking, reviews = by_urgency(open_requests(app.connection))
    requests = blocking + reviews
    if app.output.json_mode:
        app.output.json([to_json(request) for request in requests])
        return
    from ramet.words import plural

    from rametctl.lines import line
    from rametctl.render.request import request_lines

    if not requests:
        app.output.text("nothing waits for you")
        return
    headings = {0: f"work waits for you: {plural(len(blocking), 'request')}"} if blocking else {}
    if reviews:
        headings[len(blocking)] = f"to look at: {plural(len(reviews), 'finished turn')}"
    for index, request in enumerate(requests):
        if index:
            app.output.text("")
        if index in headings:
            app.output.show(line((headings[index], "bold")))
            app.output.text("")
        app.output.show(*request_lines(request, time.time(), requests))


def _watch(app: App) -> None:
    """Print what waits, then what comes and what is answered."""
    from ramet.jsonify import to_json

    from rametctl.follow import follow
    from rametctl.lines import line
    from rametctl.render.request import request_lines, short_id, shown_decision, title
    from rametctl.requests import by_urgency, open_requests

    # The log's end first, then the list: what opens in between is in both, and told by its id.
    cursor = app.connection.info().cursor
    shown: set[str] = set()
    blocking, reviews = by_urgency(open_requests(app.connection))
    waiting = blocking + reviews
    for request in waiting:
        shown.add(request.id)
        if app.output.json_mode:
            app.output.json(to_json(request), stream=True)
        else:
            app.output.show(*request_lines(request, time.time(), waiting))
    for item in follow(app.connection, after=cursor):
        if item.event.HasField("request_opened"):
            request = item.event.request_opened.request
            if request.id in shown:
                continue
            shown.add(request.id)
            lines = list(request_lines(request, time.time()))
        elif item.event.HasField("request_closed"):
            request = item.event.request_closed.request
            name = request.session_name or request.session_id
            lines = [line((f"{short_id(request)}  {name}  {title(request)}  {shown_decision(request)}", "dim"))]
        else:
            continue
        if app.output.json_mode:
            app.output.json(to_json(request), stream=True)
        else:
            app.output.show(*lines)
