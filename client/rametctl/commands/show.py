"""`rametctl show`: show a session's details."""

import time

import click
from ramet.jsonify import to_json

from rametctl.app import App
from rametctl.nouns.requests import remember
from rametctl.nouns.sessions import get_session
from rametctl.options import Verb, session_argument
from rametctl.render.request import kind_name, request_lines
from rametctl.render.session import details, variable_lines
from rametctl.render.transcript import message_lines


@click.command("show", cls=Verb, short_help="Show a session's details.")
@session_argument
@click.option("--disk", is_flag=True, help="Measure the worktree's disk usage too.")
@click.option("--env", is_flag=True, help="List its environment variables: names, not values.")
@click.pass_obj
def command(app: App, session: str, disk: bool, env: bool) -> None:
    """Show the details of SESSION: state, cost and remaining budget, process, parent and
    children, reports, undelivered prompts, its last words, and open requests with the
    commands that answer them.

    \b
    Examples:
      rametctl show fix-login
      rametctl show fix-login --json | jq .worktree
    """
    answer = get_session(app, session, disk_use=disk, variables=env)
    if app.output.json_mode:
        data = to_json(answer)
        app.output.json(data.pop("session") | data)
        return
    app.output.show(*details(answer))
    words = message_lines(answer.last_words, app.output.look())
    if words:
        app.output.text("")
        app.output.show(*words)
    remember(app, answer.open_requests)
    for request in answer.open_requests:
        app.output.text("")
        lines = list(request_lines(request, time.time(), answer.open_requests))
        # A review repeats the last words.
        app.output.show(*((lines[0], lines[-1]) if words and kind_name(request) == "review" else lines))
    if env:
        app.output.text("")
        app.output.show(*variable_lines(app.output, answer.variables))
