"""`rametctl archive`: remove the worktree, keep the work."""

import click
from ramet.v1 import session_pb2
from ramet.words import size

from rametctl.app import App
from rametctl.nouns.sessions import outcome_of, session_name
from rametctl.options import Verb, sessions_argument
from rametctl.render.session import reference


@click.command("archive", cls=Verb, short_help="Remove the worktree, keep the work.")
@sessions_argument(required=True)
@click.option("--stop", is_flag=True, help="End a running turn instead of refusing.")
@click.pass_obj
def command(app: App, sessions: tuple[str, ...], stop: bool) -> int:
    """Archive SESSION...: stop its agent and remove its worktree. Ramet keeps the branch,
    checkpoints, uncommitted changes, conversation and environment;
    `rametctl restore` restores them. A checkout that Ramet did not create stays.

    \b
    Example:
      rametctl archive fix-login docs
    """

    def act(session: str) -> object:
        request = session_pb2.ArchiveSessionRequest(session=session_name(app, session), force=stop)
        answer = app.call(lambda daemon: daemon.sessions.ArchiveSession, request, doing="archiving …")
        freed = f"{size(answer.freed_bytes)} freed; " if answer.freed_bytes else ""
        return outcome_of(
            app,
            answer.session,
            note=f"{freed}to restore it: rametctl restore {reference(answer.session)}",
            ref=answer.ref,
            freed_bytes=str(answer.freed_bytes),
            warnings=list(answer.warnings),
        )

    return app.for_each(sessions, act)
