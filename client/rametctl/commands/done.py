"""`rametctl done`: close finished turns."""

import click
from ramet.v1 import attention_pb2

from rametctl.app import App
from rametctl.errors import ClientError, UsageError
from rametctl.nouns.requests import finished_turns, open_requests, resolve
from rametctl.nouns.sessions import get_session
from rametctl.options import Verb, sessions_argument


@click.command("done", cls=Verb, short_help="Close finished turns that you have reviewed.")
@sessions_argument(required=False)
@click.option("-a", "--all", "everything", is_flag=True, help="All finished turns.")
@click.pass_obj
def command(app: App, sessions: tuple[str, ...], everything: bool) -> int:
    """Remove the finished turns of SESSION... from the inbox. Requests for which an agent waits
    stay. `rametctl deny SESSION -m TEXT` returns the work to the agent instead.

    \b
    Examples:
      rametctl done fix-login docs
      rametctl done --all
    """
    if bool(sessions) == everything:
        raise UsageError("give sessions, or --all", hint="see: rametctl inbox")
    waiting = finished_turns(open_requests(app.connection))
    approval = attention_pb2.Resolution(approve=attention_pb2.Approval())
    if everything:
        closed = [resolve(app, request.id, approval) for request in waiting]
        app.output.json(closed)
        if not closed:
            app.output.text("no finished turns wait for you")
        return 0

    def act(session: str) -> object:
        found = get_session(app, session).session
        review = next((request for request in waiting if request.session_id == found.id), None)
        if review is None:
            raise ClientError(f"no finished turn of {found.name} waits for you", hint="see: rametctl inbox")
        return resolve(app, review.id, approval)

    return app.for_each(sessions, act)
