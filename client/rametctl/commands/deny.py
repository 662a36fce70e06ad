"""`rametctl deny`: deny requests."""

import click
from ramet.v1 import attention_pb2

from rametctl.app import App
from rametctl.nouns.requests import resolve, seen_request
from rametctl.options import Verb, requests_argument


@click.command("deny", cls=Verb, short_help="Deny requests.")
@requests_argument
@click.option("-m", "--message", default="", metavar="WHY", help="Reason, sent to the agent.")
@click.pass_obj
def command(app: App, requests: tuple[str, ...], message: str) -> int:
    """Deny REQUEST...: ids, unique prefixes of ids, or sessions with exactly one open
    request. The agent continues with your answer. For a finished turn, WHY is the
    next prompt.

    \b
    Examples:
      rametctl deny fix-login -m "use the staging database"
      rametctl deny k3xw9abc docs
    """
    resolution = attention_pb2.Resolution(deny=attention_pb2.Denial(message=message))

    def fits(kind: str) -> bool:
        return bool(message) or kind != "review"

    return app.for_each(requests, lambda reference: resolve(app, seen_request(app, reference, fits), resolution))
