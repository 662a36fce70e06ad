"""`rametctl queue`: what is about to land."""

from typing import TYPE_CHECKING

import click

from rametctl.app import App
from rametctl.options import Verb, VerbGroup, complete_session, new_request_id, repo_option, repo_reference

if TYPE_CHECKING:
    from ramet.v1.landing_pb2 import Landing


@click.group("queue", cls=VerbGroup, short_help="The merge queues: ls, rm, retry.")
@click.pass_context
def command(context: click.Context) -> None:
    """What `land` has put into the queues, in the order in which it lands.

    \b
    Examples:
      rametctl queue
      rametctl queue retry fix-login
      rametctl queue rm docs
    """
    if context.invoked_subcommand is None:
        _list(context.ensure_object(App), None, ended=False)


@command.command("ls", cls=Verb, short_help="List them.")
@click.option("--all", "ended", is_flag=True, help="Also what has landed or was taken out.")
@repo_option
@click.pass_obj
def ls(app: App, ended: bool, repo: str | None) -> None:
    """List the queues of all repositories, or of one.

    \b
    Example:
      rametctl queue ls --all --json | jq -r '.[] | [.place, .id] | @tsv'
    """
    _list(app, repo, ended=ended)


@command.command("rm", cls=Verb, short_help="Take one out.")
@click.argument("landing", metavar="S", shell_complete=complete_session)
@click.pass_obj
def remove(app: App, landing: str) -> None:
    """Take an entry out, named by its session or its id. Branch and session stay as
    they are; a check that runs is ended.

    \b
    Example:
      rametctl queue rm docs
    """
    from ramet.v1 import landing_pb2

    request = landing_pb2.RemoveLandingRequest(landing=landing, request_id=new_request_id())
    _show(app, app.connection.call(lambda daemon: daemon.landing.RemoveLanding, request).landing)


@command.command("retry", cls=Verb, short_help="Try one again.")
@click.argument("landing", metavar="S", shell_complete=complete_session)
@click.pass_obj
def retry(app: App, landing: str) -> None:
    """Queue an entry again that needs you or is back with its agent, named by its
    session or its id.

    \b
    Example:
      rametctl queue retry fix-login
    """
    from ramet.v1 import landing_pb2

    request = landing_pb2.RetryLandingRequest(landing=landing, request_id=new_request_id())
    _show(app, app.connection.call(lambda daemon: daemon.landing.RetryLanding, request).landing)


def _list(app: App, repo: str | None, *, ended: bool) -> None:
    from ramet.jsonify import to_json

    from rametctl.landings import all_landings
    from rametctl.render.landing import landing_table

    found = all_landings(app, repo=repo_reference(app, repo) if repo is not None else "", ended=ended)
    if app.output.json_mode:
        app.output.json([to_json(each) for each in found])
    elif not found:
        app.output.text("nothing is queued; put something in: rametctl land S")
    else:
        app.output.show(*landing_table(app.output, found))


def _show(app: App, landing: "Landing") -> None:
    from ramet.jsonify import to_json

    from rametctl.render.landing import landing_line

    if app.output.json_mode:
        app.output.json(to_json(landing))
    else:
        app.output.show(landing_line(landing))
