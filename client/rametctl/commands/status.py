"""`rametctl status`: count sessions by what they need."""

import click

from rametctl.app import App
from rametctl.errors import UnreachableError
from rametctl.nouns.sessions import session_pages
from rametctl.options import Verb
from rametctl.render.session import state_name

WORKING = frozenset({"queued", "starting", "working", "lost"})


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
        sessions = [session for page in session_pages(connection, repo="") for session in page.sessions]
    except UnreachableError:
        if short:
            return
        raise
    needing = [each for each in sessions if state_name(each) in {"waiting", "failed"}]
    working = [each for each in sessions if state_name(each) in WORKING]
    counts = {"need_you": len(needing), "working": len(working), "other": len(sessions) - len(needing) - len(working)}
    app.output.json(counts)
    if short:
        signs = zip(("⚠", "▶", "✓"), counts.values(), strict=True)
        app.output.raw(" ".join(f"{count}{sign}" for sign, count in signs if count))
    else:
        app.output.text(", ".join(f"{count} {name.replace('_', ' ')}" for name, count in counts.items()))
