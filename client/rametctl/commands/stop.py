"""`rametctl stop`: end the agent, keep everything."""

import click

from rametctl.app import App
from rametctl.options import Verb, new_request_id, session_argument


@click.command("stop", cls=Verb, short_help="End the agent, keep everything.")
@session_argument
@click.pass_obj
def command(app: App, session: str) -> None:
    """End the agent of session S with all its processes. Worktree, branch,
    conversation and prompts are kept; `rametctl resume` or the next prompt goes on.

    \b
    Example:
      rametctl stop fix-login
    """
    from ramet.v1 import session_pb2

    from rametctl.sessions import get_session, report

    found = get_session(app, session).session
    request = session_pb2.StopSessionRequest(session=found.id, request_id=new_request_id())
    with app.output.spinner("working on it …"):
        answer = app.connection.call(lambda daemon: daemon.sessions.StopSession, request)
    report(app, answer.session)
