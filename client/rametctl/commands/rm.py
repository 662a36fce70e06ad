"""`rametctl rm`: remove sessions."""

import click
from ramet.jsonify import to_json
from ramet.v1 import session_pb2
from ramet.v1.session_pb2 import DeleteSessionResponse

from rametctl.app import App
from rametctl.console.lines import line
from rametctl.errors import ClientError, RefusedError
from rametctl.nouns.sessions import get_session
from rametctl.options import Verb, sessions_argument
from rametctl.render.format import local_time
from rametctl.render.session import at_work, reference, state_name


@click.command("rm", cls=Verb, short_help="Remove sessions, their worktrees and branches.")
@sessions_argument(required=True)
@click.option("--stop", is_flag=True, help="End a running turn instead of refusing.")
@click.option("-f", "--force", is_flag=True, help="Remove unmerged work too; it goes to the trash.")
@click.pass_obj
def command(app: App, sessions: tuple[str, ...], stop: bool, force: bool) -> int:
    """Remove SESSION... with their worktrees and branches; give complete names. Refuses a session
    with a running turn unless you give --stop, and one whose work exists nowhere else unless you
    give --force, which moves that work to the trash too. `rametctl restore SESSION` restores a
    removed session. If one cannot be removed, the others still are. A checkout that Ramet did not
    create stays.

    \b
    Examples:
      rametctl rm fix-login
      rametctl rm fix-login docs --stop --force
    """

    def act(session: str) -> object:
        answer = _remove(app, session, stop=stop, force=force)
        _show(app, answer)
        return to_json(answer)

    return app.for_each(sessions, act)


def _remove(app: App, session: str, *, stop: bool, force: bool) -> "DeleteSessionResponse":
    """Remove one session. Print what would be lost before the error."""
    found = get_session(app, session).session
    if session != found.name and not session.endswith(f"/{found.name}") and not found.id.startswith(session):
        raise ClientError(f"{session!r} is only the beginning of {found.name}", hint="give its complete name")
    if at_work(found):
        if stop:
            request_stop = session_pb2.StopSessionRequest(session=found.id)
            app.call(lambda daemon: daemon.sessions.StopSession, request_stop)
        elif force:  # without it the daemon refuses
            hint = "add --stop to end its turn first"
            raise ClientError(f"{found.name} is {state_name(found)}", hint=hint, reason="WRONG_STATE")
    request = session_pb2.DeleteSessionRequest(session=found.id, force=force)
    try:
        return app.call(lambda daemon: daemon.sessions.DeleteSession, request, doing="removing …")
    except RefusedError as error:
        if error.reason == "WORK_AT_RISK":
            for key, value in sorted(error.data.items()):
                for text in value.splitlines():
                    app.output.note(f"  {key.replace('_', ' ')}: {text}")
        raise


def _show(app: App, answer: "DeleteSessionResponse") -> None:
    session = answer.session
    app.output.show(line("removed ", (session.name, "bold")))
    if answer.landing_target:
        app.output.text(f"removed from the queue of {answer.landing_target}; it will not land")
    if session.worktree_kind in {session_pb2.WORKTREE_KIND_IN_PLACE, session_pb2.WORKTREE_KIND_ADOPTED}:
        app.output.text(f"{session.worktree} and its branch are unchanged")
    if answer.HasField("expire_time"):
        app.output.text(f"to restore it, until {local_time(answer.expire_time)}: rametctl restore {reference(session)}")
