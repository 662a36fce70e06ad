"""`rametctl status`: count sessions by what they need."""

import click

from rametctl.app import App
from rametctl.errors import UnreachableError
from rametctl.nouns.requests import open_requests
from rametctl.nouns.sessions import session_pages
from rametctl.options import Verb
from rametctl.render.request import blocks
from rametctl.render.session import WORKING_STATES, needs_person, state_name


@click.command("status", cls=Verb, short_help="Count sessions: need you, working, done.")
@click.option("--short", is_flag=True, help="Only signs and numbers, for tmux and prompts.")
@click.pass_obj
def command(app: App, short: bool) -> None:
    """Count the sessions of all repositories: those that need you, those at work, and
    the others. --short never starts a daemon, and prints nothing without one.

    \b
    Examples:
      rametctl status
      set -g status-right '#(rametctl status --short)'
    """
    connection = app.connect(autostart=False) if short else app.connection
    try:
        blocked = {request.session_id for request in open_requests(connection) if blocks(request)}
        sessions = [session for page in session_pages(connection, repo="") for session in page.sessions]
    except UnreachableError:
        if short:
            return
        raise
    others = [each for each in sessions if not needs_person(each, blocked=each.id in blocked)]
    working = sum(1 for each in others if state_name(each) in WORKING_STATES)
    counts = {"need_you": len(sessions) - len(others), "working": working, "other": len(others) - working}
    app.output.json(counts)
    if short:
        signs = zip(("⚠", "▶", "✓"), counts.values(), strict=True)
        app.output.raw(" ".join(f"{count}{sign}" for sign, count in signs if count))
    else:
        app.output.text(", ".join(f"{count} {name.replace('_', ' ')}" for name, count in counts.items()))
