"""`rametctl shell`: the person's own shell in a session's worktree."""

import os

import click

from rametctl.app import App
from rametctl.options import Verb, session_argument


@click.command("shell", cls=Verb, short_help="Open your shell in a session's worktree.")
@session_argument
@click.pass_obj
def command(app: App, session: str) -> None:
    """Open $SHELL in the worktree of session S, with your environment and the
    session's RAMET_ variables (ports, worktree, branch) in it. You act as yourself
    there. With --json say where that is and what would be set.

    \b
    Examples:
      rametctl shell fix-login
      rametctl shell fix-login --json | jq -r .directory
    """
    from ramet.jsonify import to_json
    from ramet.v1 import terminal_pb2

    from rametctl.errors import ClientError
    from rametctl.sessions import get_session

    found = get_session(app, session).session
    request = terminal_pb2.GetShellRequest(session=found.id)
    answer = app.connection.call(lambda daemon: daemon.terminals.GetShell, request)
    if app.output.json_mode:
        app.output.json(to_json(answer))
        return
    shell = app.environ.get("SHELL") or "/bin/sh"
    app.output.hint(f"{answer.directory}; exit brings you back")
    try:
        os.chdir(answer.directory)
        os.execvpe(shell, [shell], {**app.environ, **answer.environment, "PWD": answer.directory})  # noqa: S606  it is the shell
    except OSError as error:
        raise ClientError(f"no shell can be opened there: {error}", hint="is $SHELL set to a program?") from error
