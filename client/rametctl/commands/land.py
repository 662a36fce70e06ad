"""`rametctl land`: bring sessions' work onto their target, checked."""

import click

from rametctl.app import App
from rametctl.options import Verb, new_request_id, sessions_argument

SHORTEST = 0.001
"""Seconds; 0 would be no end."""


@click.command("land", cls=Verb, short_help="Bring work onto its target branch, checked first.")
@sessions_argument(required=True)
@click.option("--check", metavar="CMD", multiple=True, help="What must succeed first; instead of what is configured.")
@click.option("--target", metavar="BRANCH", help="The branch to land on; the base otherwise.")
@click.option(
    "--method", type=click.Choice(["merge", "rebase", "squash"]), help="How; as configured (land.method) otherwise."
)
@click.option("--commit", "commit_message", metavar="MESSAGE", help="Commit first what is not committed.")
@click.option("--detach", is_flag=True, help="Do not wait until it has landed.")
@click.option(
    "--timeout", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS", help="Leave with 124 after this long."
)
@click.pass_obj
def command(
    app: App,
    sessions: tuple[str, ...],
    check: tuple[str, ...],
    target: str | None,
    method: str | None,
    commit_message: str | None,
    detach: bool,
    timeout: float | None,
) -> None:
    """Put S... into the queue of the branch that they started from, in this order.
    In a worktree of its own each is brought onto the branch and checked, and only
    then is the branch moved. What conflicts or fails its check goes back to its
    agent, and in the end to you; the others go on. Waits for the end.

    Leaves with 0 when all have landed, with 4 when one needs you, with 1 when one
    was taken out.

    \b
    Examples:
      rametctl land fix-login docs --check "make test"
      rametctl land docs --method squash --target release --detach
    """
    import time

    from ramet.jsonify import to_json
    from ramet.v1 import landing_pb2

    from rametctl.connection import GRACE
    from rametctl.errors import UsageError
    from rametctl.landings import check_landed, follow_landings, wait_landings
    from rametctl.render.landing import landing_line

    if detach and timeout is not None:
        raise UsageError("--detach and --timeout were both given", hint="give one of them")
    request = landing_pb2.LandSessionsRequest(
        sessions=sessions,
        target=target or "",
        method=method or "",
        check=check,
        path=app.repo_here() or "",
        commit_message=commit_message or "",
        request_id=new_request_id(),
    )
    live = not app.output.json_mode
    begin = time.monotonic()
    with app.connection.within(None if timeout is None else timeout + GRACE):
        # The log's end first: what happens between the call and the first look is then seen too.
        cursor = app.connection.info().cursor
        queued = app.connection.call(lambda daemon: daemon.landing.LandSessions, request)
        landings = list(queued.landings)
        for warning in queued.warnings:
            app.output.note(f"rametctl: {warning}")
        left = None if timeout is None else max(timeout - (time.monotonic() - begin), SHORTEST)
        try:
            if not detach:
                landings = follow_landings(app, landings, cursor, left) if live else wait_landings(app, landings, left)
        except KeyboardInterrupt:
            app.output.note("landing goes on: rametctl queue")
            raise
    if app.output.json_mode:
        app.output.json([to_json(each) for each in landings])
    elif detach or not live:
        app.output.show(*(landing_line(each) for each in landings))
    if not detach:
        check_landed(landings)
