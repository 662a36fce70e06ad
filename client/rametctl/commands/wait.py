"""`rametctl wait`: wait for sessions."""

import time

import click

from rametctl.app import App
from rametctl.nouns.sessions import check_outcome, detachable, get_session, wait_sessions
from rametctl.options import Verb, sessions_argument
from rametctl.render.session import outcome


@click.command("wait", cls=Verb, short_help="Wait until sessions are idle, need you, or have ended.")
@sessions_argument(required=True)
@click.option("--any", "any_of_them", is_flag=True, help="Return when one of them is in that state.")
@click.option(
    "--for", "condition", type=click.Choice(["idle", "settled", "waiting", "ended"]), default="idle",
    help="State to wait for (default: idle); settled: idle, with no background commands.",
)  # fmt: skip
@click.option("--timeout", type=click.FloatRange(min=0), metavar="SECONDS", help="Exit with 124 after this time.")
@click.pass_obj
def command(app: App, sessions: tuple[str, ...], any_of_them: bool, condition: str, timeout: float | None) -> None:
    """Wait until all of SESSION... are idle, need your input, or have ended.

    Exits with 0 once they are, with 4 as soon as one needs your input (unless you wait for that),
    with 1 if they cannot reach that state or a turn fails meanwhile, and with 124 after the time
    limit. Continues over restarts of the daemon.

    \b
    Examples:
      rametctl wait fix-login docs && rametctl diff docs
      rametctl wait fix-login --for waiting --timeout 600
    """
    from rametctl.connection.channel import ANSWER_GRACE

    begin = time.monotonic()
    with app.connection.within(None if timeout is None else timeout + ANSWER_GRACE):
        # Resolve names once: a session may be renamed meanwhile.
        found = [get_session(app, session).session for session in sessions]
        left = None if timeout is None else max(timeout - (time.monotonic() - begin), 0.0)
        ids = [session.id for session in found]
        with detachable(app, found):
            answer = wait_sessions(app, ids, condition=condition, any_of_them=any_of_them, timeout=left)
    app.output.answer(answer, (outcome(session) for session in answer.sessions))
    check_outcome(answer)
