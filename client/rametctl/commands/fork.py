"""`rametctl fork`: the same conversation and the same files once more."""

import sys

import click

from rametctl.app import App
from rametctl.options import new_request_id, session_argument
from rametctl.prompts import PromptCommand, read_prompt


@click.command("fork", cls=PromptCommand, short_help="The same conversation and files once more.")
@session_argument
@click.argument("prompt", metavar="[PROMPT|-]", required=False)
@click.option("-f", "--file", metavar="FILE", help="Read the prompt from a file.")
@click.option("--at", "checkpoint", default="", metavar="CHECKPOINT", help="From this checkpoint instead of now.")
@click.option("--name", default="", metavar="N", help="Name of the new session.")
@click.option("--branch", default="", metavar="B", help="Branch to make.")
@click.pass_obj
def command(
    app: App, session: str, prompt: str | None, file: str | None, checkpoint: str, name: str, branch: str
) -> None:
    """Make a new session that begins as a copy of session S: what was said so far,
    and all files as they are, uncommitted ones included, in a worktree and branch
    of its own. S goes on as it was.

    \b
    Examples:
      rametctl fork fix-login "now try it with a cache"
      rametctl fork fix-login --at 3 --name fix-login-again
    """
    from ramet.v1 import session_pb2

    from rametctl.sessions import get_session, report

    text = read_prompt(prompt, file, sys.stdin)
    request = session_pb2.ForkSessionRequest(
        session=get_session(app, session).session.id,
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
