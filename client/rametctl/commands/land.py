"""`rametctl land`: merge sessions' work into the target branch, checked first."""

import time

import click
from ramet.v1 import landing_pb2
from ramet.v1.landing_pb2 import LandSessionsRequest, LandSessionsResponse

from rametctl.app import App
from rametctl.errors import RefusedError, UsageError
from rametctl.nouns.landings import check_landed, follow_landings, wait_landings
from rametctl.options import Verb, complete_target, sessions_argument
from rametctl.render.landing import landing_line

SHORTEST = 0.001
"""Minimum time limit in seconds; 0 would mean no limit."""


@click.command("land", cls=Verb, short_help="Merge work into its target branch, checked first.")
@sessions_argument(required=True)
@click.option("--check", metavar="CMD", multiple=True, help="Check that must pass; overrides the configured one.")
@click.option(
    "--target", metavar="BRANCH", shell_complete=complete_target, help="Branch to land on (default: the base)."
)
@click.option("--method", type=click.Choice(["merge", "rebase", "squash"]), help="Merge method (default: land.method).")
@click.option("--commit", "commit_message", metavar="MESSAGE", help="Commit uncommitted changes first.")
@click.option("--local", is_flag=True, help="Land on a branch that has an upstream; nothing is pushed.")
@click.option("--detach", is_flag=True, help="Do not wait until it has landed.")
@click.option(
    "--timeout", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS", help="Exit with 124 after this time."
)
@click.pass_obj
def command(
    app: App,
    sessions: tuple[str, ...],
    check: tuple[str, ...],
    target: str | None,
    method: str | None,
    commit_message: str | None,
    local: bool,
    detach: bool,
    timeout: float | None,
) -> None:
    """Queue SESSION... to land on the branch they started from, in this order. Ramet merges and
    checks each one in a separate worktree, and only then moves the branch; where it is checked out,
    git fast-forwards that checkout. After a conflict or a failed check Ramet asks the agent to fix
    it, and finally you; the others continue. Waits until all are done. If the branch has an
    upstream, asks on a terminal; --local lands on your own branch anyway.

    Exits with 0 if all have landed, with 4 if one needs your input, and with 1 if
    one was removed from the queue.

    \b
    Examples:
      rametctl land fix-login docs --check "make test"
      rametctl land docs --method squash --target release --detach
    """
    from rametctl.connection.channel import ANSWER_GRACE

    if detach and timeout is not None:
        raise UsageError("--detach and --timeout were both given", hint="give one of them")
    request = landing_pb2.LandSessionsRequest(
        sessions=sessions,
        target=target or "",
        method=method or "",
        check=check,
        path=app.repo_here() or "",
        commit_message=commit_message or "",
        local=local,
    )
    live = not app.output.json_mode
    begin = time.monotonic()
    with app.connection.within(None if timeout is None else timeout + ANSWER_GRACE):
        # Read the log's end first: events between the call and the first read of the entries must
        # count.
        cursor = app.connection.info().cursor
        queued = queue_landing(app, request)
        landings = list(queued.landings)
        left = None if timeout is None else max(timeout - (time.monotonic() - begin), SHORTEST)
        try:
            if not detach:
                landings = follow_landings(app, landings, cursor, left) if live else wait_landings(app, landings, left)
        except KeyboardInterrupt:
            app.output.erase_echo()
            app.output.note("landing continues; see: rametctl queue")
            raise
    app.output.json(landings)
    if detach or not live:
        app.output.show(*(landing_line(each) for each in landings))
    if not detach:
        check_landed(landings, shown=live)


def queue_landing(app: App, request: "LandSessionsRequest") -> "LandSessionsResponse":
    """Queue the sessions; on a terminal, ask whether to land on a branch that has an upstream."""
    try:
        return app.call(lambda daemon: daemon.landing.LandSessions, request)
    except RefusedError as error:
        if not error.data.get("upstream") or not app.can_ask:
            raise
        if not app.output.confirm(f"{error.message}. Land on your local {error.data['branch']}? Nothing is pushed."):
            raise
    request.local = True
    request.request_id = ""  # another request than the refused one
    return app.call(lambda daemon: daemon.landing.LandSessions, request)
