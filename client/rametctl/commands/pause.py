"""`rametctl pause`: pause a session."""

import click

from rametctl.app import App
from rametctl.options import Verb, new_request_id, session_argument


@click.command("pause", cls=Verb, short_help="Pause a session; prompts wait.")
@session_argument
@click.pass_obj
def command(app: App, session: str) -> None:
    """Pause SESSION: interrupt the running turn, and hold new prompts until
    `rametctl resume`.

    \b
    Example:
      rametctl pause fix-login
    """
    from ramet.v1 import session_pb2

    from rametctl.sessions import get_session, report

    found = get_session(app, session).session
    request = session_pb2.PauseSessionRequest(session=found.id, request_id=new_request_id())
    with app.output.spinner("working on it …"):
        answer = app.connection.call(lambda daemon: daemon.sessions.PauseSession, request)
    report(app, answer.session)
