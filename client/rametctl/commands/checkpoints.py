"""`rametctl checkpoints`: list or create checkpoints."""

import shlex
import time
from collections.abc import Sequence

import click
from ramet.v1 import worktree_pb2
from ramet.v1.worktree_pb2 import Checkpoint

from rametctl.app import App
from rametctl.console.lines import Span
from rametctl.nouns.sessions import session_name
from rametctl.options import Verb, session_argument
from rametctl.render.format import age
from rametctl.render.session import checkpoint_reason


@click.command("checkpoints", cls=Verb, short_help="List or create checkpoints.")
@session_argument
@click.option("--make", is_flag=True, help="Create a checkpoint first.")
@click.pass_obj
def command(app: App, session: str, make: bool) -> None:
    """List the checkpoints of SESSION, newest first. Ramet creates one at the start,
    after every turn, and before every rewind and sync. They include untracked
    files, but not ignored ones. After a rewind, LINE marks the current checkpoint
    and those that the rewind left behind; you can rewind to these too.

    \b
    Examples:
      rametctl checkpoints fix-login
      rametctl checkpoints fix-login --make
      rametctl diff fix-login --against 3
    """
    name = session_name(app, session)
    if make:
        wanted = worktree_pb2.CreateCheckpointRequest(session=name)
        app.call(lambda daemon: daemon.worktrees.CreateCheckpoint, wanted, doing="creating a checkpoint …")
    request = worktree_pb2.ListCheckpointsRequest(session=name)
    checkpoints = app.listed(lambda daemon: daemon.worktrees.ListCheckpoints, request, lambda page: page.checkpoints)
    app.output.json(checkpoints)
    if not checkpoints:
        app.output.text("no checkpoints yet; the first one is being created")
    else:
        _show(app, checkpoints)
        app.output.hint(f"to rewind: rametctl rewind {shlex.quote(session)} NUMBER")


def _show(app: App, checkpoints: "Sequence[Checkpoint]") -> None:
    now = time.time()
    rows: list[list[Span]] = [
        [
            (str(each.number), "bold"),
            (age(each.create_time, now), "dim"),
            (checkpoint_reason(each), ""),
            (str(each.turn), ""),
            (str(each.files), ""),
            (f"+{each.additions} -{each.deletions}", ""),
            (each.summary, "dim"),
        ]
        for each in checkpoints
    ]
    # Only a rewind creates a second line; without one the newest checkpoint is the current one.
    left_behind = any(each.abandoned for each in checkpoints)
    if left_behind:
        for each, row in zip(checkpoints, rows, strict=True):
            row.insert(1, ("here", "bold") if each.current else ("left behind", "dim") if each.abandoned else ("", ""))
    line = ("LINE",) if left_behind else ()
    headers = ("NUMBER", *line, "AGE", "WHY", "TURN", "FILES", "LINES", "ASKED FOR")
    table = app.output.table(headers, rows, shrink=[("ASKED FOR", 10)], right=frozenset({"NUMBER", "TURN", "FILES"}))
    app.output.show(*table)
