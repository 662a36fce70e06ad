"""`rametctl setup`: prepare a session's worktree."""

import json
import shlex

import click
from ramet.v1 import terminal_pb2
from ramet.v1.terminal_pb2 import SetUpSessionResponse

from rametctl.app import App
from rametctl.nouns.sessions import session_name
from rametctl.nouns.terminals import follow_to_end
from rametctl.options import Verb, session_argument
from rametctl.render.command import how_it_ended


@click.command("setup", cls=Verb, short_help="Run the setup of a session's worktree.")
@session_argument
@click.option("--detach", is_flag=True, help="Start it in the background.")
@click.pass_obj
def command(app: App, session: str, detach: bool) -> int:
    """Run the configured setup in the worktree of SESSION, even if it has run before, and
    follow its output. If none is configured, print a suggestion for .ramet.toml
    without running it.

    \b
    Examples:
      rametctl setup fix-login
      rametctl setup fix-login --json
    """
    request = terminal_pb2.SetUpSessionRequest(session=session_name(app, session))
    answer = app.call(lambda daemon: daemon.terminals.SetUpSession, request, doing="starting …")
    if not answer.HasField("command") or detach:
        app.output.json(answer)
        if answer.HasField("command"):
            app.output.text(
                f"it is running; to follow its output: rametctl run {shlex.quote(session)} --logs {answer.command.id} --follow"
            )
        else:
            _suggest(app, answer)
        return 0
    ended = follow_to_end(app, answer.command, f"rametctl run {shlex.quote(session)} --stop {answer.command.id}")
    app.output.json(ended, stream=True)
    app.output.note(f"setup {how_it_ended(ended)}")
    return 0 if ended.exit_status == "code 0" else 1


def _suggest(app: App, answer: "SetUpSessionResponse") -> None:
    if not answer.suggestion:
        app.output.text("no setup is configured; put one into .ramet.toml: setup = [COMMAND, ...]")
        return
    app.output.note(
        f"no setup is configured; this looks like a project of {answer.project_kind}. Lines for .ramet.toml:"
    )
    commands = ", ".join(json.dumps(command, ensure_ascii=False) for command in answer.suggestion)
    app.output.text(f"setup = [{commands}]")
