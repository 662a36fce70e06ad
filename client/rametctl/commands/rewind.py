"""`rametctl rewind`: back to a checkpoint."""

import click

from rametctl.app import App
from rametctl.options import Verb, new_request_id, session_argument


@click.command("rewind", cls=Verb, short_help="Bring a session back to a checkpoint.")
@session_argument
@click.argument("checkpoint")
@click.option("--files-only", is_flag=True, help="Leave the conversation as it is.")
@click.pass_obj
def command(app: App, session: str, checkpoint: str, files_only: bool) -> None:
    """Bring the files of session S back to CHECKPOINT (its number or id, as
    `rametctl checkpoints` shows them), and its conversation to the end of that
    turn. Commits made since are taken back from its branch. What is overwritten
    becomes a checkpoint first; ignored files stay as they are. Refused while a turn
    runs.

    \b
    Examples:
      rametctl rewind fix-login 3
      rametctl rewind fix-login 3 --files-only
    """
    from ramet.jsonify import to_json
    from ramet.v1 import worktree_pb2
    from ramet.words import plural

    from rametctl.lines import line
    from rametctl.sessions import get_session

    found = get_session(app, session).session
    request = worktree_pb2.RewindSessionRequest(
        session=found.id, checkpoint=checkpoint, files_only=files_only, request_id=new_request_id()
    )
    with app.output.spinner("bringing it back …"):
        answer = app.connection.call(lambda daemon: daemon.worktrees.RewindSession, request)
    for warning in answer.warnings:
        app.output.note(f"rametctl: warning: {warning}")
    if app.output.json_mode:
        app.output.json(to_json(answer))
        return
    number, turn = answer.checkpoint.number, answer.checkpoint.turn
    if answer.before.id == answer.checkpoint.id:
        already = f" was at checkpoint {number} already: nothing has changed"
        app.output.show(line((found.name, "bold"), already))
        return
    what = f"is back at checkpoint {number}, {plural(len(answer.files), 'file')} changed"
    talk = (
        "" if files_only else f"; its conversation ends with turn {turn}" if turn else "; its conversation begins anew"
    )
    app.output.show(line((found.name, "bold"), f" {what}{talk}"))
    app.output.text(f"to undo this: rametctl rewind {session} {answer.before.number}")
