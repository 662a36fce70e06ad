"""`rametctl show`: everything about one session."""

import time

import click

from rametctl.app import App
from rametctl.options import Verb, session_argument


@click.command("show", cls=Verb, short_help="Everything about one session.")
@session_argument
@click.pass_obj
def command(app: App, session: str) -> None:
    """Show everything about session S: state, cost, process, children, prompts
    that it has not got yet, and what waits for you with the command to answer.

    \b
    Examples:
      rametctl show fix-login
      rametctl show fix-login --json | jq .worktree
    """
    from ramet.jsonify import to_json

    from rametctl.render.request import request_lines
    from rametctl.render.session import details
    from rametctl.sessions import get_session

    answer = get_session(app, session)
    if app.output.json_mode:
        data = to_json(answer)
        app.output.json(data.pop("session") | data)
        return
    app.output.show(*details(answer))
    for request in answer.open_requests:
        app.output.text("")
        app.output.show(*request_lines(request, time.time(), answer.open_requests))
