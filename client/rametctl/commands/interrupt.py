"""`rametctl interrupt`: end the running turn; the agent stays."""

import click

from rametctl.app import App
from rametctl.options import Verb, new_request_id, session_argument


@click.command("interrupt", cls=Verb, short_help="End the running turn; the agent stays.")
@session_argument
@click.pass_obj
def command(app: App, session: str) -> None:
    """End the running turn of SESSION. The agent stays, ready for the next prompt.
    A prompt that was sent into the turn and not read yet is withdrawn, and printed.

    \b
    Example:
      rametctl interrupt fix-login
    """
    from ramet.v1 import session_pb2

    from rametctl.sessions import get_session, report

    found = get_session(app, session).session
    request = session_pb2.InterruptSessionRequest(session=found.id, request_id=new_request_id())
    with app.output.spinner("working on it …"):
        answer = app.connection.call(lambda daemon: daemon.sessions.InterruptSession, request)
    for prompt in answer.withdrawn:
        app.output.note(f"rametctl: not read, withdrawn: {prompt.text}")
    note = "" if answer.interrupted else "there was no turn to interrupt"
    report(app, answer.session, note=note, interrupted=answer.interrupted)
