"""`rametctl queue`: manage the merge queues."""

import click
from ramet.v1 import landing_pb2
from ramet.v1.landing_pb2 import Landing

from rametctl.app import App
from rametctl.nouns.landings import all_landings
from rametctl.options import Verb, VerbGroup, complete_session, repo_option, repo_reference
from rametctl.render.landing import landing_line, landing_table


@click.group("queue", cls=VerbGroup, short_help="Manage the merge queues: ls, rm, retry.")
@click.pass_context
def command(context: click.Context) -> None:
    """Show the merge queues that `land` fills, in landing order.

    \b
    Examples:
      rametctl queue
      rametctl queue retry fix-login
      rametctl queue rm docs
    """
    if context.invoked_subcommand is None:
        _list(context.ensure_object(App), None, ended=False)


@command.command("ls", cls=Verb, short_help="List the queues.")
@click.option("-a", "--all", "ended", is_flag=True, help="Include landed and removed entries.")
@repo_option
@click.pass_obj
def ls(app: App, ended: bool, repo: str | None) -> None:
    """List the queues of all repositories, or of one.

    \b
    Example:
      rametctl queue ls --all --json | jq -r '.[] | [.place, .id] | @tsv'
    """
    _list(app, repo, ended=ended)


@command.command("rm", cls=Verb, short_help="Remove an entry.")
@click.argument("landing", metavar="SESSION", shell_complete=complete_session)
@click.pass_obj
def remove(app: App, landing: str) -> None:
    """Remove an entry, named by its session or id, from the queue. A running check is
    stopped; branch and session are not changed.

    \b
    Example:
      rametctl queue rm docs
    """
    request = landing_pb2.RemoveLandingRequest(landing=landing)
    _show(app, app.call(lambda daemon: daemon.landing.RemoveLanding, request).landing)


@command.command("retry", cls=Verb, short_help="Retry an entry.")
@click.argument("landing", metavar="SESSION", shell_complete=complete_session)
@click.pass_obj
def retry(app: App, landing: str) -> None:
    """Retry an entry that waits for you or its agent, named by its session or id.

    \b
    Example:
      rametctl queue retry fix-login
    """
    request = landing_pb2.RetryLandingRequest(landing=landing)
    _show(app, app.call(lambda daemon: daemon.landing.RetryLanding, request).landing)


def _list(app: App, repo: str | None, *, ended: bool) -> None:
    found = all_landings(app, repo=repo_reference(app, repo) if repo is not None else "", ended=ended)
    app.output.answer(
        found, landing_table(app.output, found), empty="nothing is queued; to queue work: rametctl land SESSION"
    )


def _show(app: App, landing: "Landing") -> None:
    app.output.answer(landing, [landing_line(landing)])
