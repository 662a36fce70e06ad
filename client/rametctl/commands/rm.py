"""`rametctl rm`: remove a session."""

import shlex

import click

from rametctl.app import App
from rametctl.options import Verb, new_request_id, session_argument


@click.command("rm", cls=Verb, short_help="Remove a session, its worktree and branch.")
@session_argument
@click.option("--force", is_flag=True, help="Even with work that exists nowhere else: it is kept under a ref first.")
@click.pass_obj
def command(app: App, session: str, force: bool) -> None:
    """Remove session S with its worktree and branch. Refused while it holds
    work that exists nowhere else; with --force that work is moved to the trash
    first, and the ref that holds it is told.

    \b
    Examples:
      rametctl rm fix-login
      rametctl rm fix-login --force
    """
    from ramet.jsonify import to_json
    from ramet.v1 import session_pb2

    from rametctl.errors import RefusedError
    from rametctl.lines import line, printable
    from rametctl.render.format import local_time
    from rametctl.sessions import get_session

    found = get_session(app, session).session
    request = session_pb2.DeleteSessionRequest(session=found.id, force=force, request_id=new_request_id())
    try:
        with app.output.spinner("removing …"):
            answer = app.connection.call(lambda daemon: daemon.sessions.DeleteSession, request)
    except RefusedError as error:
        if error.reason == "WORK_AT_RISK":
            for key, value in sorted(error.data.items()):
                for text in value.splitlines():
                    app.output.note(f"  {key}: {printable(text)}")
        raise
    if app.output.json_mode:
        app.output.json(to_json(answer))
        return
    app.output.show(line("removed ", (printable(answer.session.name), "bold")))
    if answer.trash_ref:
        until = f" until {local_time(answer.expire_time)}" if answer.HasField("expire_time") else ""
        app.output.text(f"what it had is kept{until} as {answer.trash_ref}")
        branch = answer.session.branch or answer.session.name
        app.output.text(f"to bring it back: git branch {shlex.quote(branch)} {shlex.quote(answer.trash_ref)}")
