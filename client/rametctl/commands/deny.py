"""`rametctl deny`: say no."""

import click

from rametctl.app import App
from rametctl.options import request_argument
from rametctl.prompts import PromptCommand


@click.command("deny", cls=PromptCommand, short_help="Say no, and why.")
@request_argument
@click.option("-m", "--message", default="", metavar="WHY", help="What the agent is told.")
@click.pass_obj
def command(app: App, request: str, message: str) -> None:
    """Deny request R: its id, a unique prefix of it, or a session with exactly
    one open request. The agent goes on with the answer; to a finished turn that
    wants a look, WHY is the next prompt.

    \b
    Example:
      rametctl deny fix-login -m "use the staging database"
    """
    from ramet.v1 import attention_pb2

    from rametctl.requests import resolve

    resolve(app, request, attention_pb2.Resolution(deny=attention_pb2.Denial(message=message)))
