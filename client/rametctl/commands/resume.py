"""`rametctl resume`: resume paused, lost or failed sessions."""

import click
from ramet.v1 import session_pb2

from rametctl.app import App
from rametctl.nouns.sessions import outcome_of, session_name
from rametctl.options import Verb, sessions_argument


@click.command("resume", cls=Verb, short_help="Resume a paused, lost or failed session.")
@sessions_argument(required=True)
@click.pass_obj
def command(app: App, sessions: tuple[str, ...]) -> int:
    """Resume each SESSION that is paused, lost or failed.

    \b
    Example:
      rametctl resume fix-login
    """

    def act(session: str) -> object:
        request = session_pb2.ResumeSessionRequest(session=session_name(app, session))
        answer = app.call(lambda daemon: daemon.sessions.ResumeSession, request, doing="resuming …")
        note = "" if answer.resumed else "nothing to resume: the session was not paused, lost or failed"
        return outcome_of(app, answer.session, note=note)

    return app.for_each(sessions, act)
