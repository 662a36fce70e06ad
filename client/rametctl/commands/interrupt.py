"""`rametctl interrupt`: end running turns; the agents keep running."""

import click
from ramet.v1 import session_pb2

from rametctl.app import App
from rametctl.nouns.sessions import outcome_of, session_name
from rametctl.options import Verb, sessions_argument
from rametctl.render.session import reference, state_name


@click.command("interrupt", cls=Verb, short_help="End the running turn; the agent keeps running.")
@sessions_argument(required=True)
@click.pass_obj
def command(app: App, sessions: tuple[str, ...]) -> int:
    """End the running turn of SESSION... The agent keeps running, ready for the next prompt.

    \b
    Example:
      rametctl interrupt fix-login
    """

    def act(session: str) -> object:
        request = session_pb2.InterruptSessionRequest(session=session_name(app, session))
        answer = app.call(lambda daemon: daemon.sessions.InterruptSession, request, doing="interrupting …")
        for prompt in answer.withdrawn:
            app.output.note(f"rametctl: withdrew a prompt that the agent had not read: {prompt.text}")
        note = "" if answer.interrupted else "there was no turn to interrupt"
        if note and (state := state_name(answer.session)) in {"queued", "starting"}:
            note += (
                f" yet: the session is {state}; to end it before its turn: rametctl stop {reference(answer.session)}"
            )
        return outcome_of(app, answer.session, note=note, interrupted=answer.interrupted)

    return app.for_each(sessions, act)
