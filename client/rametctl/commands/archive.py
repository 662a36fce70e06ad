"""`rametctl archive`: remove the worktree, keep everything."""

import click

from rametctl.app import App
from rametctl.options import Verb, new_request_id, session_argument


@click.command("archive", cls=Verb, short_help="Remove the worktree, keep everything.")
@session_argument
@click.option("--force", is_flag=True, help="End its agent where a turn runs, instead of refusing.")
@click.pass_obj
def command(app: App, session: str, force: bool) -> None:
    """Archive session S: its agent ends and its worktree goes; branch, checkpoints,
    uncommitted changes, conversation and environment are kept, and `rametctl
    restore` brings all of it back. A checkout that Ramet did not make stays as it is.

    \b
    Example:
      rametctl archive fix-login
    """
    from ramet.v1 import session_pb2
    from ramet.words import size

    from rametctl.render.session import reference
    from rametctl.sessions import get_session, report

    found = get_session(app, session).session
    request = session_pb2.ArchiveSessionRequest(session=found.id, force=force, request_id=new_request_id())
    with app.output.spinner("archiving …"):
        answer = app.connection.call(lambda daemon: daemon.sessions.ArchiveSession, request)
    for warning in answer.warnings:
        app.output.note(f"rametctl: {warning}")
    freed = f"{size(answer.freed_bytes)} freed; " if answer.freed_bytes else ""
    note = f"{freed}to bring it back: rametctl restore {reference(answer.session)}"
    report(
        app,
        answer.session,
        note=note,
        ref=answer.ref,
        freed_bytes=str(answer.freed_bytes),
        warnings=list(answer.warnings),
    )
