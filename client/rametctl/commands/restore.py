"""`rametctl restore`: restore archived and removed sessions."""

import click
from ramet.v1 import session_pb2, worktree_pb2

from rametctl.app import App
from rametctl.errors import RefusedError
from rametctl.nouns.sessions import get_session, outcome_of
from rametctl.options import Verb, complete_restorable
from rametctl.render.session import state_name


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
    found, missing = None, None
    try:
        found = get_session(app, session).session
    except RefusedError as error:
        if error.reason != "SESSION_NOT_FOUND":
            raise
        missing = error
    if found is None or state_name(found) != "archived":
        # A session that exists, such as in another repository, may have the name of a removed one.
        removed = worktree_pb2.RestoreTrashRequest(entry=session)
        try:
            from_trash = app.call(
                lambda daemon: daemon.worktrees.RestoreTrash, removed, doing="restoring the session …"
            )
        except RefusedError as other:
            if other.reason != "TRASH_ENTRY_NOT_FOUND":
                raise
            if found is None:
                raise missing or other from other
        else:
            return _restored(app, from_trash)
    archived = session_pb2.RestoreSessionRequest(session=found.id)
    return _restored(
        app, app.call(lambda daemon: daemon.sessions.RestoreSession, archived, doing="restoring the session …")
    )


def _restored(app: App, answer: worktree_pb2.RestoreTrashResponse | session_pb2.RestoreSessionResponse) -> object:
    return outcome_of(app, answer.session, note=answer.session.worktree, warnings=list(answer.warnings))
