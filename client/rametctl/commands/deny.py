"""`rametctl deny`: deny a request."""

import click

from rametctl.app import App
from rametctl.options import request_argument
from rametctl.prompts import PromptCommand


@click.command("deny", cls=PromptCommand, short_help="Deny a request.")
@request_argument
@click.option("-m", "--message", default="", metavar="WHY", help="Reason, sent to the agent.")
@click.pass_obj
def command(app: App, request: str, message: str) -> None:
    """Deny REQUEST: its id, a unique prefix of the id, or a session with exactly one
    open request. The agent continues with your answer. For a finished turn, WHY is
    the next prompt.

    \b
    Example:
      rametctl deny fix-login -m "use the staging database"
    """
    from ramet.v1 import attention_pb2

    from rametctl.requests import resolve

    resolve(app, request, attention_pb2.Resolution(deny=attention_pb2.Denial(message=message)))
