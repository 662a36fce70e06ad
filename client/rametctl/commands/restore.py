"""`rametctl restore`: restore an archived session."""

import click

from rametctl.app import App
from rametctl.options import Verb, new_request_id, session_argument


@click.command("restore", cls=Verb, short_help="Restore an archived session.")
@session_argument
@click.pass_obj
def command(app: App, session: str) -> None:
    """Restore archived SESSION: its worktree at the same path, on its branch, with its
    uncommitted changes. Warns about differences, such as a moved branch. No work is
    lost.

    \b
    Example:
      rametctl restore fix-login
    """
    from ramet.v1 import session_pb2

    from rametctl.sessions import get_session, report

    found = get_session(app, session).session
    request = session_pb2.RestoreSessionRequest(session=found.id, request_id=new_request_id())
    with app.output.spinner("restoring the session …"):
        answer = app.connection.call(lambda daemon: daemon.sessions.RestoreSession, request)
    for warning in answer.warnings:
        app.output.note(f"rametctl: {warning}")
    report(app, answer.session, note=answer.session.worktree, warnings=list(answer.warnings))
