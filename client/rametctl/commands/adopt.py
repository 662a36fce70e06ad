"""`rametctl adopt`: create a session in an existing worktree."""

import sys

import click
from ramet.v1 import session_pb2

from rametctl.app import App
from rametctl.commands.new import report_one
from rametctl.nouns.prompts import PromptCommand, read_prompt
from rametctl.options import (
    Budget,
    agent_option,
    budget_option,
    complete_directory,
    complete_file,
    mode_number,
    mode_option,
)


@click.command("adopt", cls=PromptCommand, short_help="Create a session in an existing worktree.")
@click.argument("path", metavar="PATH", shell_complete=complete_directory)
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
    "-n", "--name", default="", help="Session name; by default from PROMPT, else the last part of the branch."
)
@agent_option("Kind of agent (default: claude).")
@click.option("-m", "--model", default="", help="Model.")
@mode_option("Permission mode.")
@budget_option("Pause the session at this cost: dollars, or tokens such as 2Mtok.")
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
    budget: Budget | None,
) -> None:
    """Create a session in the worktree at PATH, which `git worktree add` or another
    tool created. The session uses the worktree as it is, with its branch and
    uncommitted changes. Removing the session does not remove the worktree.

    \b
    Examples:
      rametctl adopt ../shop-login
      rametctl adopt ../shop-login "finish this change"
    """
    text = read_prompt(prompt, file, sys.stdin, app.output.note, app.cwd)
    place = app.absolute(path)
    request = session_pb2.CreateSessionRequest(
        path=place,
        adopt_path=place,
        prompt=text or "",
        name=name,
        agent=agent,
        model=model,
        mode=mode_number(mode),
        **(budget or {}),
    )
    answer = app.call(lambda daemon: daemon.sessions.CreateSession, request, doing="creating the session …")
    report_one(app, answer.session, idle=text is None)
