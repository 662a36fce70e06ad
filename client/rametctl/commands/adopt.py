"""`rametctl adopt`: a session in a worktree that was made by hand."""

import sys

import click

from rametctl.app import App
from rametctl.options import mode_number, mode_option, new_request_id
from rametctl.prompts import PromptCommand, read_prompt


@click.command("adopt", cls=PromptCommand, short_help="A session in a worktree made by hand.")
@click.argument("path", metavar="PATH")
@click.argument("prompt", metavar="[PROMPT|-]", required=False)
@click.option("-f", "--file", metavar="FILE", help="Read the prompt from a file.")
@click.option("--name", default="", help="Its name; otherwise from PROMPT, else the last part of its branch.")
@click.option("--agent", default="", help="Kind of agent; claude otherwise.")
@click.option("--model", default="", help="Its model.")
@mode_option("What it may do unasked.")
@click.option("--budget", type=click.FloatRange(min=0, min_open=True), metavar="USD", help="Pause it at this cost.")
@click.pass_obj
def command(
    app: App,
    path: str,
    prompt: str | None,
    file: str | None,
    name: str,
    agent: str,
    model: str,
    mode: str | None,
    budget: float | None,
) -> None:
    """Make a session in the worktree at PATH, which `git worktree add` or another
    tool has made. It is taken as it is, with its branch and whatever is changed
    in it, and it stays: removing the session leaves the worktree alone.

    \b
    Examples:
      rametctl adopt ../shop-login
      rametctl adopt ../shop-login "finish what is begun here"
    """
    from ramet.v1 import session_pb2

    from rametctl.commands.new import report_one
    from rametctl.environment import sent_environment

    text = read_prompt(prompt, file, sys.stdin)
    place = app.absolute(path)
    request = session_pb2.CreateSessionRequest(
        path=place,
        adopt_path=place,
        prompt=text or "",
        name=name,
        agent=agent,
        model=model,
        mode=mode_number(mode),
        budget_usd=budget,
        request_id=new_request_id(),
    )
    with app.output.spinner("making it …"):
        request.environment.update(sent_environment(app))
        answer = app.connection.call(lambda daemon: daemon.sessions.CreateSession, request)
    for warning in answer.warnings:
        app.output.note(f"rametctl: warning: {warning}")
    report_one(app, answer.session, idle=text is None)
