"""`rametctl fork`: copy a session."""

import sys

import click

from rametctl.app import App
from rametctl.options import new_request_id, session_argument
from rametctl.prompts import PromptCommand, read_prompt


@click.command("fork", cls=PromptCommand, short_help="Copy a session: conversation and files.")
@session_argument
@click.argument("prompt", metavar="[PROMPT|-]", required=False)
@click.option("-f", "-F", "--file", metavar="FILE", help="Read the prompt from a file.")
@click.option(
    "--at", "checkpoint", default="", metavar="CHECKPOINT", help="Copy this checkpoint instead of the present state."
)
@click.option("-n", "--name", default="", metavar="N", help="Name of the new session.")
@click.option("-b", "--branch", default="", metavar="B", help="Branch to create.")
@click.pass_obj
def command(
    app: App, session: str, prompt: str | None, file: str | None, checkpoint: str, name: str, branch: str
) -> None:
    """Create a copy of SESSION: its conversation so far and all files, including
    uncommitted changes, in a worktree and branch of its own. SESSION itself is not
    changed.

    \b
    Examples:
      rametctl fork fix-login "now try it with a cache"
      rametctl fork fix-login --at 3 --name fix-login-again
    """
    from ramet.v1 import session_pb2

    from rametctl.sessions import report, session_name

    text = read_prompt(prompt, file, sys.stdin)
    request = session_pb2.ForkSessionRequest(
        session=session_name(app, session),
        prompt=text or "",
        checkpoint=checkpoint,
        name=name,
        branch=branch,
        request_id=new_request_id(),
    )
    with app.output.spinner("forking …"):
        answer = app.connection.call(lambda daemon: daemon.sessions.ForkSession, request)
    for warning in answer.warnings:
        app.output.note(f"rametctl: {warning}")
    report(app, answer.session, note=f"branch {answer.session.branch}, worktree {answer.session.worktree}")
