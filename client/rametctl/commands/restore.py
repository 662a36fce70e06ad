"""`rametctl restore`: restore archived and removed sessions."""

import click
from ramet.v1 import session_pb2, worktree_pb2

from rametctl.app import App
from rametctl.errors import RefusedError
from rametctl.nouns.sessions import get_session, outcome_of
from rametctl.options import Verb, complete_restorable


@click.command("restore", cls=Verb, short_help="Restore an archived or removed session.")
@click.argument("sessions", metavar="SESSION...", nargs=-1, required=True, shell_complete=complete_restorable)
@click.pass_obj
def command(app: App, sessions: tuple[str, ...]) -> int:
    """Restore SESSION... from the archive or the trash: the worktree, on its branch, with
    its uncommitted changes and its conversation. Warns about differences, such as a
    moved branch. No work is lost.

    \b
    Examples:
      rametctl restore fix-login
      rametctl trash ls
    """
    return app.for_each(sessions, lambda session: _restore(app, session))


def _restore(app: App, session: str) -> object:
    try:
        found = get_session(app, session).session
    except RefusedError as error:
        if error.reason != "SESSION_NOT_FOUND":
            raise
        removed = worktree_pb2.RestoreTrashRequest(entry=session)
        try:
            from_trash = app.call(
                lambda daemon: daemon.worktrees.RestoreTrash, removed, doing="restoring the session …"
            )
        except RefusedError as other:
            raise (error if other.reason == "TRASH_ENTRY_NOT_FOUND" else other) from other
        restored, warnings = from_trash.session, list(from_trash.warnings)
    else:
        archived = session_pb2.RestoreSessionRequest(session=found.id)
        from_archive = app.call(
            lambda daemon: daemon.sessions.RestoreSession, archived, doing="restoring the session …"
        )
        restored, warnings = from_archive.session, list(from_archive.warnings)
    return outcome_of(app, restored, note=restored.worktree, warnings=warnings)
