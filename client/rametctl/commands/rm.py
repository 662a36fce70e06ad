"""`rametctl rm`: remove sessions."""

import shlex
from typing import TYPE_CHECKING

import click

from rametctl.app import App
from rametctl.errors import ClientError
from rametctl.options import Verb, new_request_id, sessions_argument

if TYPE_CHECKING:
    from ramet.v1.session_pb2 import DeleteSessionResponse


@click.command("rm", cls=Verb, short_help="Remove sessions, their worktrees and branches.")
@sessions_argument(required=True)
@click.option("--force", is_flag=True, help="Even with work that exists nowhere else: it is kept under a ref first.")
@click.pass_obj
def command(app: App, sessions: tuple[str, ...], force: bool) -> int:
    """Remove sessions S... with their worktrees and branches. One that holds work
    that exists nowhere else is refused; with --force that work is moved to the
    trash first, and the ref that holds it is told. One that cannot be removed does
    not keep the others from it.

    \b
    Examples:
      rametctl rm fix-login
      rametctl rm fix-login docs --force
    """
    from ramet.jsonify import to_json

    if len(sessions) == 1:
        answer = _remove(app, sessions[0], force)
        if app.output.json_mode:
            app.output.json(to_json(answer))
        else:
            _show(app, answer)
        return 0
    status = 0
    shown: list[object] = []
    for session in dict.fromkeys(sessions):
        try:
            answer = _remove(app, session, force)
        except ClientError as error:
            status = status or error.exit_code
            app.output.note(f"rametctl: {session}: {error.message}" + (f"; {error.hint}" if error.hint else ""))
            shown.append({"error": {"reason": error.reason, "message": error.message, "hint": error.hint}})
            continue
        shown.append(to_json(answer))
        if not app.output.json_mode:
            _show(app, answer)
    if app.output.json_mode:
        app.output.json(shown)
    return status


def _remove(app: App, session: str, force: bool) -> "DeleteSessionResponse":
    """Remove one. What it would lose is told before the error."""
    from ramet.v1 import session_pb2

    from rametctl.errors import RefusedError
    from rametctl.lines import printable
    from rametctl.sessions import get_session

    found = get_session(app, session).session
    request = session_pb2.DeleteSessionRequest(session=found.id, force=force, request_id=new_request_id())
    try:
        with app.output.spinner("removing …"):
            return app.connection.call(lambda daemon: daemon.sessions.DeleteSession, request)
    except RefusedError as error:
        if error.reason == "WORK_AT_RISK":
            for key, value in sorted(error.data.items()):
                for text in value.splitlines():
                    app.output.note(f"  {key}: {printable(text)}")
        raise


def _show(app: App, answer: "DeleteSessionResponse") -> None:
    from rametctl.lines import line, printable
    from rametctl.render.format import local_time

    app.output.show(line("removed ", (printable(answer.session.name), "bold")))
    if answer.trash_ref:
        until = f" until {local_time(answer.expire_time)}" if answer.HasField("expire_time") else ""
        app.output.text(f"what it had is kept{until} as {answer.trash_ref}")
        branch = answer.session.branch or answer.session.name
        app.output.text(f"to bring it back: git branch {shlex.quote(branch)} {shlex.quote(answer.trash_ref)}")
