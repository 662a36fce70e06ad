"""`rametctl fork`: copy a session."""

import sys

import click
from ramet.v1 import session_pb2

from rametctl.app import App
from rametctl.commands.new import report_one
from rametctl.errors import UsageError
from rametctl.nouns.prompts import PromptCommand, read_prompt
from rametctl.nouns.sessions import check_outcome, detachable, session_name, show_end, wait_sessions
from rametctl.options import agent_option, complete_checkpoint, complete_file, session_argument, wait_options
from rametctl.render.session import created


@click.command("fork", cls=PromptCommand, short_help="Copy a session: conversation and files.")
@session_argument
@click.argument("prompt", metavar="[PROMPT|-]", required=False)
@click.option(
    "-f",
    "-F",
    "--file",
    metavar="FILE",
    shell_complete=complete_file,
    help="Read the prompt, or what follows PROMPT, from a file.",
)
@click.option(
    "--at",
    "checkpoint",
    default="",
    metavar="CHECKPOINT",
    shell_complete=complete_checkpoint,
    help="Copy this checkpoint instead of the present state.",
)
@agent_option("Continue with another kind of agent, which gets a summary of the conversation.")
@click.option("-n", "--name", default="", metavar="N", help="Name of the new session.")
@click.option("-b", "--branch", default="", metavar="B", help="Branch to create.")
@wait_options
@click.pass_obj
def command(
    app: App,
    session: str,
    prompt: str | None,
    file: str | None,
    checkpoint: str,
    agent: str,
    name: str,
    branch: str,
    wait: bool,
    timeout: float | None,
) -> None:
    """Create a copy of SESSION: its conversation so far and all files, including
    uncommitted changes, in a worktree and branch of its own. SESSION itself is not
    changed.

    \b
    Examples:
      rametctl fork fix-login "now try it with a cache"
      rametctl fork fix-login --at 3 --name fix-login-again
      rametctl fork fix-login --agent codex "review this, then continue"
    """
    text = read_prompt(prompt, file, sys.stdin, app.output.note, app.cwd)
    if wait and text is None:
        raise UsageError("--wait needs a prompt", hint="give a prompt", reason="EMPTY_PROMPT")
    request = session_pb2.ForkSessionRequest(
        session=session_name(app, session),
        prompt=text or "",
        checkpoint=checkpoint,
        agent=agent,
        name=name,
        branch=branch,
    )
    answer = app.call(lambda daemon: daemon.sessions.ForkSession, request, doing="forking …")
    if not wait:
        report_one(app, answer.session, idle=text is None)
        return
    app.output.show(*created(answer.session))
    with detachable(app, [answer.session]):
        waited = wait_sessions(app, [answer.session.id], condition="turn", timeout=timeout)
        latest = waited.sessions[0] if waited.sessions else answer.session
        app.output.json(latest)
        app.output.text("")
        show_end(app, latest, waited)
        check_outcome(waited)
