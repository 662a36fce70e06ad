"""`rametctl messages`: list messages between sessions."""

from collections.abc import Iterator

import click
from ramet.jsonify import enum_name
from ramet.v1 import orchestration_pb2
from ramet.v1.orchestration_pb2 import Message

from rametctl.app import App
from rametctl.console.lines import Line, line
from rametctl.errors import UsageError
from rametctl.nouns.sessions import acting_session, get_session
from rametctl.options import Verb, complete_session
from rametctl.render.format import local_time


@click.command("messages", cls=Verb, short_help="List messages between sessions.")
@click.argument("session", metavar="[SESSION]", required=False, shell_complete=complete_session)
@click.pass_obj
def command(app: App, session: str | None) -> None:
    """Show the messages between SESSION and other sessions: sender, recipient, state,
    time and text. Lists at most the newest 100, oldest first. Inside a session omit
    SESSION. Your own prompts are in `rametctl events SESSION --audit`.

    \b
    Examples:
      rametctl messages parser
      rametctl messages parser --json | jq -r '.[].text'
    """
    inside = acting_session(app)
    if inside and session is not None:
        raise UsageError("a session may list only its own messages", hint="omit SESSION")
    if not inside and session is None:
        raise UsageError("no session was named", hint="give SESSION; see: rametctl ls")
    whose = get_session(app, session).session.id if session is not None else ""
    answer = app.call(
        lambda daemon: daemon.orchestration.ReadMessages, orchestration_pb2.ReadMessagesRequest(session=whose)
    )
    app.output.json(answer.messages)
    if not answer.messages:
        app.output.text("no messages")
    else:
        for message in answer.messages:
            app.output.show(*_lines(message))


def _lines(message: "Message") -> "Iterator[Line]":
    state = enum_name(message, "state") or "withdrawn"
    yield line(
        ((message.from_name or message.from_id), "bold"), " → ",
        ((message.to_name or message.to_id), "bold"),
        f"  {state}  ", (local_time(message.create_time), "dim"),
    )  # fmt: skip
    yield from (line(text, indent=2) for text in message.text.rstrip("\n").split("\n"))
