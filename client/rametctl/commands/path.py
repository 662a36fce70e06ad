"""`rametctl path`: print a session's worktree."""

import click

from rametctl.app import App
from rametctl.nouns.sessions import get_session
from rametctl.options import Verb, session_argument


@click.command("path", cls=Verb, short_help="Print the path of a session's worktree.")
@session_argument
@click.pass_obj
def command(app: App, session: str) -> None:
    """Print the path of SESSION's worktree and nothing else.

    \b
    Example:
      cd "$(rametctl path fix-login)"
    """
    worktree = get_session(app, session).session.worktree
    app.output.json({"path": worktree})
    app.output.raw(worktree)
