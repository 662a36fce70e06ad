"""`rametctl wait`: wait for sessions."""

import click

from rametctl.app import App
from rametctl.options import Verb, sessions_argument


@click.command("wait", cls=Verb, short_help="Wait until sessions are idle, or need a person, or are over.")
@sessions_argument(required=True)
@click.option("--any", "any_of_them", is_flag=True, help="One of them is enough.")
@click.option(
    "--for", "condition", type=click.Choice(["idle", "settled", "waiting", "ended"]), default="idle",
    help="What to wait for; idle otherwise. settled: idle, and nothing in the background.",
)  # fmt: skip
@click.option("--timeout", type=click.FloatRange(min=0), metavar="SECONDS", help="Leave with 124 after this long.")
@click.pass_obj
def command(app: App, sessions: tuple[str, ...], any_of_them: bool, condition: str, timeout: float | None) -> None:
    """Wait until all of S... are idle, wait for a person, or are over.

    Leaves with 0 once it is so, with 4 as soon as a person is needed (unless
    that is what it waits for), with 1 when it cannot come any more, and with
    124 when the time is over. Restarts of the daemon do not disturb it.

    \b
    Examples:
      rametctl wait fix-login docs && rametctl diff docs
      rametctl wait fix-login --for waiting --timeout 600
    """
    import time

    from ramet.jsonify import to_json

    from rametctl.connection import GRACE
    from rametctl.render.session import outcome
    from rametctl.sessions import check_outcome, get_session, going_on, wait_sessions

    begin = time.monotonic()
    with app.connection.within(None if timeout is None else timeout + GRACE):
        # Names are looked up once: a session that is renamed meanwhile is still the one that was meant.
        found = [get_session(app, session).session for session in sessions]
        left = None if timeout is None else max(timeout - (time.monotonic() - begin), 0.0)
        ids = [session.id for session in found]
        with going_on(app, found):
            answer = wait_sessions(app, ids, condition=condition, any_of_them=any_of_them, timeout=left)
    if app.output.json_mode:
        app.output.json(to_json(answer))
    else:
        app.output.show(*(outcome(session) for session in answer.sessions))
    check_outcome(answer)
