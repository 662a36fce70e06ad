"""`rametctl pause`: pause sessions."""

import click
from ramet.v1 import session_pb2

from rametctl.app import App
from rametctl.nouns.sessions import outcome_of, session_name
from rametctl.options import Verb, sessions_argument


@click.command("pause", cls=Verb, short_help="Pause a session; prompts wait.")
@sessions_argument(required=True)
@click.pass_obj
def command(app: App, sessions: tuple[str, ...]) -> int:
    """Pause SESSION...: interrupt the running turn, and hold new prompts until
    `rametctl resume`.

    \b
    Example:
      rametctl pause fix-login
    """

    def act(session: str) -> object:
        request = session_pb2.PauseSessionRequest(session=session_name(app, session))
        answer = app.call(lambda daemon: daemon.sessions.PauseSession, request, doing="pausing …")
        return outcome_of(app, answer.session)

    return app.for_each(sessions, act)
