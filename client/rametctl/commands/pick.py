"""`rametctl pick`: pick one contender of a contest and archive the others."""

import click
from ramet.v1 import landing_pb2
from ramet.v1.landing_pb2 import Landing

from rametctl.app import App
from rametctl.commands.land import queue_landing
from rametctl.errors import UsageError
from rametctl.nouns.contests import archive_requests, calls, find_members, no_contest, pick, picked_words
from rametctl.nouns.landings import check_landed, wait_landings
from rametctl.nouns.sessions import get_session
from rametctl.options import Verb, session_argument
from rametctl.render.landing import landing_line
from rametctl.render.session import reference


@click.command("pick", cls=Verb, short_help="Pick one contender, archive the others.")
@session_argument
@click.option("--land", is_flag=True, help="Land it, as `rametctl land` does, before the others are archived.")
@click.option("--commit", "commit_message", metavar="MESSAGE", help="With --land: commit uncommitted changes first.")
@click.option("--local", is_flag=True, help="With --land: land on a branch that has an upstream; nothing is pushed.")
@click.option("--stop", is_flag=True, help="Interrupt contenders that are still working, instead of refusing.")
@click.pass_obj
def command(app: App, session: str, land: bool, commit_message: str | None, local: bool, stop: bool) -> None:
    """Pick SESSION as the result of its contest, and archive the other contenders and
    the judges. `rametctl restore` restores an archived one. With --land, nothing is
    archived if the landing is refused. Run it again to finish an interrupted pick.

    \b
    Examples:
      rametctl pick make-it-faster-2
      rametctl pick make-it-faster-2 --land --commit "Make the parser faster"
    """
    import asyncio

    if (commit_message is not None or local) and not land:
        raise UsageError("--commit and --local need --land", hint="add --land")
    picked = get_session(app, session).session
    if not picked.contest:
        raise no_contest(picked)
    _, contenders, judges = find_members(app, picked.id)
    archives = archive_requests(picked, contenders, judges, stop=stop)
    landings: list[Landing] = []
    if land:
        request = landing_pb2.LandSessionsRequest(
            sessions=[picked.id], commit_message=commit_message or "", local=local
        )
        with app.output.spinner("queueing …"):
            landings = list(queue_landing(app, request).landings)
    with app.output.spinner("archiving …"):
        archived, _ = asyncio.run(pick(calls(app), archives))
    app.output.text(picked_words(picked, archived))
    if archived:
        app.output.text(f"to restore one: rametctl restore {reference(archived[0])}")
    if landings:
        landings = wait_landings(app, landings, None)
    if app.output.json_mode:
        now = get_session(app, picked.id).session
        app.output.json({"picked": now, "archived": archived, "landing": landings[0] if landings else None})
    app.output.show(*map(landing_line, landings))
    check_landed(landings, shown=False)
