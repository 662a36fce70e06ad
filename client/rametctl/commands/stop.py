"""`rametctl stop`: stop the agent."""

import click
from ramet.jsonify import to_json
from ramet.v1 import session_pb2
from ramet.v1.session_pb2 import Session
from ramet.words import plural

from rametctl.app import App
from rametctl.errors import UsageError
from rametctl.nouns.sessions import descendants as descendants_of
from rametctl.nouns.sessions import get_session, is_living, outcome_of
from rametctl.options import Verb, sessions_argument
from rametctl.render.session import reference, state_name


@click.command("stop", cls=Verb, short_help="Stop the agent; keep the session.")
@sessions_argument(required=True)
@click.option("--descendants", is_flag=True, help="Stop all its descendants too.")
@click.option("--alone", is_flag=True, help="Stop only this session (default: ask).")
@click.pass_obj
def command(app: App, sessions: tuple[str, ...], descendants: bool, alone: bool) -> int:
    """Stop the agent of SESSION... with all its processes. Worktree, branch, conversation
    and prompts stay. `rametctl resume` continues an interrupted turn; the next prompt
    starts the agent again.

    \b
    Examples:
      rametctl stop fix-login
      rametctl stop lead --descendants
    """
    if descendants and alone:
        raise UsageError("--descendants and --alone were both given", hint="give one of them")
    return app.for_each(sessions, lambda session: _stop_family(app, session, descendants, alone))


def _stop_family(app: App, session: str, descendants: bool, alone: bool) -> object:
    found = get_session(app, session).session
    living = [] if alone else [each for each in descendants_of(app.connection, found) if is_living(each)]
    names = ", ".join(" ".join(each.name.split()) for each in living)
    if living and not descendants:
        if app.on_terminal:
            descendants = app.output.confirm(f"Stop its {plural(len(living), 'descendant')} too ({names})?")
        else:
            app.output.note(f"rametctl: {names} of its family keep running; --descendants stops them too")
    with app.output.spinner("stopping …"):
        # From the top down: a stopped session cannot spawn others.
        first, *others = [_stop(app, each.id) for each in [found, *(living if descendants else [])]]
    shown = outcome_of(app, first, state="stopped", descendants=[to_json(each) for each in others])
    if state_name(first) == "idle":
        app.output.hint(f"its next prompt starts the agent again: rametctl send {reference(first)}")
    for each in others:
        outcome_of(app, each, state="stopped")
    return shown


def _stop(app: App, session_id: str) -> "Session":
    request = session_pb2.StopSessionRequest(session=session_id)
    answer = app.call(lambda daemon: daemon.sessions.StopSession, request)
    return answer.session
