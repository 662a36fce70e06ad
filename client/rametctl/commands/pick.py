"""`rametctl pick`: keep one contender of a contest and archive the others."""

from typing import TYPE_CHECKING

import click

from rametctl.app import App
from rametctl.options import Verb, new_request_id, session_argument

if TYPE_CHECKING:
    from ramet.v1.landing_pb2 import Landing


@click.command("pick", cls=Verb, short_help="Keep one contender, archive the others.")
@session_argument
@click.option("--land", is_flag=True, help="Land it, as `rametctl land` does, before the others are archived.")
@click.option("--commit", "commit_message", metavar="MESSAGE", help="With --land: commit uncommitted changes first.")
@click.option("--local", is_flag=True, help="With --land: land on a branch that has an upstream; nothing is pushed.")
@click.option("--stop", is_flag=True, help="Interrupt contenders that still work, instead of refusing.")
@click.pass_obj
def command(app: App, session: str, land: bool, commit_message: str | None, local: bool, stop: bool) -> None:
    """Keep SESSION of its contest and archive the other contenders and the judges.
    `rametctl restore` restores an archived one. With --land, nothing is archived if
    SESSION is refused. Run it again to finish what was cut off.

    \b
    Examples:
      rametctl pick make-it-faster-2
      rametctl pick make-it-faster-2 --land --commit "Make the parser faster"
    """
    from ramet import jsonify
    from ramet.v1 import landing_pb2, session_pb2

    from rametctl.commands.land import queue_landing
    from rametctl.contests import WORKING, find_members, no_contest
    from rametctl.errors import ClientError, UsageError
    from rametctl.landings import check_landed, wait_landings
    from rametctl.render.landing import landing_line
    from rametctl.render.session import reference, state_name
    from rametctl.sessions import get_session

    if (commit_message is not None or local) and not land:
        raise UsageError("--commit and --local need --land", hint="add --land")
    kept = get_session(app, session).session
    if not kept.contest:
        raise no_contest(kept)
    if state_name(kept) == "archived":
        raise ClientError(
            f"{kept.name} is archived",
            hint=f"restore it first: rametctl restore {reference(kept)}",
            reason="WRONG_STATE",
        )
    _, contenders, judges = find_members(app, kept.id)
    others = [each for each in (*contenders, *judges) if each.id != kept.id and state_name(each) != "archived"]
    working = [each for each in contenders if state_name(each) in WORKING]
    if working and not stop:
        names = ", ".join(f"{each.name} ({state_name(each)})" for each in working)
        raise ClientError(f"not all have ended: {names}", hint="wait for them, or add --stop", reason="WRONG_STATE")
    landings: list[Landing] = []
    if land:
        request = landing_pb2.LandSessionsRequest(
            sessions=[kept.id], commit_message=commit_message or "", local=local, request_id=new_request_id()
        )
        with app.output.spinner("queueing …"):
            landings = list(queue_landing(app, request).landings)
    archived = []
    for each in others:
        with app.output.spinner(f"archiving {each.name} …"):
            answer = app.connection.call(
                lambda daemon: daemon.sessions.ArchiveSession,
                session_pb2.ArchiveSessionRequest(
                    session=each.id, force=stop or each in judges, request_id=new_request_id()
                ),
            )
        archived.append(answer.session)
        for warning in answer.warnings:
            app.output.note(f"rametctl: {warning}")
    if not app.output.json_mode:
        app.output.text(
            f"{kept.name} is kept" + (f"; archived: {', '.join(each.name for each in archived)}" if archived else "")
        )
        if archived:
            app.output.text(f"to restore one: rametctl restore {reference(archived[0])}")
    if landings:
        landings = wait_landings(app, landings, None)
    if app.output.json_mode:
        app.output.json(
            {
                "picked": jsonify.to_json(get_session(app, kept.id).session),
                "archived": [jsonify.to_json(each) for each in archived],
                "landing": jsonify.to_json(landings[0]) if landings else None,
            }
        )
    elif landings:
        app.output.show(*map(landing_line, landings))
    check_landed(landings, shown=False)
