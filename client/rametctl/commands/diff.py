"""`rametctl diff`: what a session has changed."""

from typing import TYPE_CHECKING

import click

from rametctl.app import App
from rametctl.options import Verb, session_argument

if TYPE_CHECKING:
    from ramet.v1.worktree_pb2 import GetDiffResponse


@click.command("diff", cls=Verb, short_help="What a session has changed.")
@session_argument
@click.option("--stat", is_flag=True, help="Counts per file.")
@click.option("--name-only", is_flag=True, help="Paths alone.")
@click.option("--against", default="", metavar="REF", help='Compare with "base" (as by default), or any ref.')
@click.pass_obj
def command(app: App, session: str, stat: bool, name_only: bool, against: str) -> None:
    """Show what session S has changed since it started, uncommitted and
    untracked work included. Coloured and paged on a terminal, a patch that
    `git apply` takes elsewhere.

    \b
    Examples:
      rametctl diff fix-login
      rametctl diff fix-login --stat --against main
      rametctl diff fix-login | git apply
    """
    from ramet.jsonify import to_json
    from ramet.v1 import worktree_pb2

    from rametctl.errors import UsageError
    from rametctl.sessions import get_session

    if stat and name_only:
        raise UsageError("--stat and --name-only were both given", hint="give one of them")
    request = worktree_pb2.GetDiffRequest(
        session=get_session(app, session).session.id, against=against, stat_only=stat or name_only
    )
    with app.output.spinner("comparing …"):
        answer = app.connection.call(lambda daemon: daemon.worktrees.GetDiff, request)
    if app.output.json_mode:
        app.output.json(to_json(answer))
    elif name_only:
        app.output.text(*(_path(app, change.path) for change in answer.files))
    elif stat:
        from rametctl.render.diff import stat_lines

        app.output.show(*stat_lines(answer))
    else:
        _show_patch(app, answer)
    if answer.truncated and not app.output.json_mode:
        app.output.note("rametctl: the diff was cut, it is too long; see all of it with git in the session's worktree")


def _show_patch(app: App, answer: "GetDiffResponse") -> None:
    if app.output.terminal:
        from rametctl.render.diff import coloured

        app.output.page(coloured(app.output, answer.patch))
    else:
        app.output.binary(answer.patch)


def _path(app: App, path: str) -> str:
    from rametctl.lines import printable

    return printable(path) if app.output.terminal else path
