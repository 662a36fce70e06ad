"""`rametctl msg`: send a message to a session."""

import sys

import click

from rametctl.app import App
from rametctl.options import new_request_id, session_argument
from rametctl.prompts import PromptCommand, read_prompt


@click.command("msg", cls=PromptCommand, short_help="Send a message to a session.")
@session_argument
@click.argument("text", metavar="[TEXT|-]", required=False)
@click.option("-f", "--file", metavar="FILE", help="Read the message from a file.")
@click.pass_obj
def command(app: App, session: str, text: str | None, file: str | None) -> None:
    """Send TEXT to SESSION and show whether it was delivered. Inside a session, the
    message is sent in that session's name, and only to its family ("parent" is the
    session that spawned it). At most 16 KiB: name files instead of pasting them.

    \b
    Examples:
      rametctl msg parser "the grammar is in docs/grammar.md"
      rametctl msg parent "the tests pass"
    """
    from ramet.jsonify import to_json
    from ramet.v1 import orchestration_pb2

    from rametctl.errors import UsageError
    from rametctl.lines import line
    from rametctl.sessions import PARENT, acting_session, get_session

    words = read_prompt(text, file, sys.stdin)
    if words is None:
        raise UsageError("there is no message", hint="give one, or pipe one in", reason="EMPTY_PROMPT")
    to_parent = session == PARENT and acting_session(app)
    request = orchestration_pb2.SendMessageRequest(
        session=session if to_parent else get_session(app, session).session.id,
        text=words,
        request_id=new_request_id(),
    )
    answer = app.connection.call(lambda daemon: daemon.orchestration.SendMessage, request)
    if app.output.json_mode:
        app.output.json(to_json(answer))
    else:
        app.output.show(line((answer.message.to_name, "bold"), f": {answer.outcome}"))
