"""`rametctl rewind`: rewind a session to a checkpoint."""

import shlex

import click
from ramet.v1 import worktree_pb2
from ramet.words import plural

from rametctl.app import App
from rametctl.console.lines import line
from rametctl.nouns.sessions import session_name
from rametctl.options import Verb, complete_checkpoint, session_argument


@click.command("rewind", cls=Verb, short_help="Rewind a session to a checkpoint.")
@session_argument
@click.argument("checkpoint", shell_complete=complete_checkpoint)
@click.option("--files-only", is_flag=True, help="Do not rewind the conversation.")
@click.pass_obj
def command(app: App, session: str, checkpoint: str, files_only: bool) -> None:
    """Restore the files of SESSION to CHECKPOINT (its number or id from `rametctl checkpoints`),
    and its conversation to the end of that turn. Removes later commits from its branch. First
    creates a checkpoint of the present state; ignored files stay unchanged. Refused while a turn
    runs.

    \b
    Examples:
      rametctl rewind fix-login 3
      rametctl rewind fix-login 3 --files-only
    """
    request = worktree_pb2.RewindSessionRequest(
        session=session_name(app, session), checkpoint=checkpoint, files_only=files_only
    )
    answer = app.call(lambda daemon: daemon.worktrees.RewindSession, request, doing="rewinding …")
    app.output.json(answer)
    number, turn = answer.checkpoint.number, answer.checkpoint.turn
    if answer.before.id == answer.checkpoint.id:
        already = f" was at checkpoint {number} already: nothing was changed"
        app.output.show(line((answer.session.name, "bold"), already))
        return
    what = f"is back at checkpoint {number}, {plural(len(answer.files), 'file')} changed"
    talk = (
        "" if files_only else f"; its conversation ends with turn {turn}" if turn else "; its conversation begins anew"
    )
    app.output.show(line((answer.session.name, "bold"), f" {what}{talk}"))
    app.output.text(f"to undo this: rametctl rewind {shlex.quote(session)} {answer.before.number}")
