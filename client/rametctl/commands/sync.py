"""`rametctl sync`: bring the base's newest commits into a session."""

from typing import TYPE_CHECKING

import click

from rametctl.app import App
from rametctl.options import Verb, new_request_id, session_argument

if TYPE_CHECKING:
    from ramet.v1.worktree_pb2 import SyncSessionResponse


@click.command("sync", cls=Verb, short_help="Bring the base's newest commits in.")
@session_argument
@click.option("--rebase", is_flag=True, help="Put its commits on top of the base instead of merging.")
@click.option(
    "--base", "base_ref", default="", metavar="REF", help="Bring this in instead of the base it started from."
)
@click.option("--fetch", is_flag=True, help="Fetch the base from its remote first.")
@click.option("--ask-agent", is_flag=True, help="Where it conflicts, ask the agent to bring it in.")
@click.pass_obj
def command(app: App, session: str, rebase: bool, base_ref: str, fetch: bool, ask_agent: bool) -> None:
    """Merge the newest commits of its base into the branch of session S, which must
    be idle. Where that conflicts, nothing is changed and the files are listed.
    Uncommitted changes stay as they are; git refuses where they are in the way.

    \b
    Examples:
      rametctl sync fix-login
      rametctl sync fix-login --rebase --fetch
      rametctl sync fix-login --ask-agent
    """
    from ramet.jsonify import to_json
    from ramet.v1 import worktree_pb2

    from rametctl.sessions import get_session

    request = worktree_pb2.SyncSessionRequest(
        session=get_session(app, session).session.id,
        method=worktree_pb2.SYNC_METHOD_REBASE if rebase else worktree_pb2.SYNC_METHOD_MERGE,
        base_ref=base_ref,
        fetch=fetch,
        ask_agent=ask_agent,
        request_id=new_request_id(),
    )
    with app.output.spinner("bringing the base in …"):
        answer = app.connection.call(lambda daemon: daemon.worktrees.SyncSession, request)
    if app.output.json_mode:
        app.output.json(to_json(answer))
    else:
        _show(app, answer)
    if answer.conflicts and not answer.HasField("prompt"):
        raise SystemExit(1)


def _show(app: App, answer: "SyncSessionResponse") -> None:
    from rametctl.lines import line, printable
    from rametctl.render.format import plural
    from rametctl.render.session import reference

    name = printable(answer.session.name)
    if not answer.conflicts:
        what = (
            f"has {plural(answer.commits, 'new commit')} of its base"
            if answer.commits
            else "has all of its base already"
        )
        app.output.show(line((name, "bold"), f"  {what}"))
        return
    app.output.show(line((name, "bold"), "  conflicts with its base; nothing was changed:"))
    for path in answer.conflicts:
        app.output.show(line(printable(path), indent=2))
    if answer.HasField("prompt"):
        app.output.show(line("its agent is asked to bring it in"))
    else:
        app.output.show(
            line((f"to have its agent do it: rametctl sync {reference(answer.session)} --ask-agent", "dim"))
        )
