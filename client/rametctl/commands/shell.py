"""`rametctl shell`: open your shell in a session's worktree."""

import os

import click
from ramet.jsonify import to_json
from ramet.v1 import terminal_pb2

from rametctl.app import App
from rametctl.errors import ClientError
from rametctl.nouns.sessions import session_name
from rametctl.options import Verb, session_argument


@click.command("shell", cls=Verb, short_help="Open your shell in a session's worktree.")
@session_argument
@click.pass_obj
def command(app: App, session: str) -> None:
    """Open $SHELL in the worktree of SESSION, with your environment and the session's
    RAMET_ variables (ports, worktree, branch). rametctl acts as you there, not as the
    session. --json prints the directory and variables instead.

    \b
    Examples:
      rametctl shell fix-login
      rametctl shell fix-login --json | jq -r .directory
    """
    request = terminal_pb2.GetShellRequest(session=session_name(app, session))
    answer = app.call(lambda daemon: daemon.terminals.GetShell, request)
    if app.output.json_mode:
        app.output.json(to_json(answer))
        return
    shell = app.environ.get("SHELL") or "/bin/sh"
    app.output.hint(f"{answer.directory}; return with exit")
    try:
        os.chdir(answer.directory)
        os.execvpe(shell, [shell], {**app.environ, **answer.environment, "PWD": answer.directory})  # noqa: S606  it is the shell
    except OSError as error:
        raise ClientError(f"cannot open a shell: {error}", hint="is $SHELL set to a program?") from error
