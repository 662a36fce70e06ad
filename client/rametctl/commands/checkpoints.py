"""`rametctl checkpoints`: the states of a worktree that were kept."""

from typing import TYPE_CHECKING

import click

from rametctl.app import App
from rametctl.options import Verb, new_request_id, session_argument

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ramet.v1.worktree_pb2 import Checkpoint

WHY = {"rewind": "before rewind", "sync": "before sync"}
"""Reasons as people are told them, where the contract's own word could mean that it was made by what it was made for."""


@click.command("checkpoints", cls=Verb, short_help="The states of a session's files that were kept.")
@session_argument
@click.option("--make", is_flag=True, help="Keep the files as they are now first.")
@click.pass_obj
def command(app: App, session: str, make: bool) -> None:
    """List the checkpoints of session S, newest first: one at its start, one at the
    end of every turn, one before every rewind and sync. Untracked files are in them, ignored
    ones are not. After a rewind LINE shows where the session stands, and which ones it
    went back behind; these can be gone back to as well.

    \b
    Examples:
      rametctl checkpoints fix-login
      rametctl checkpoints fix-login --make
      rametctl diff fix-login --against 3
    """
    from ramet.jsonify import to_json
    from ramet.v1 import worktree_pb2

    from rametctl.sessions import get_session

    found = get_session(app, session).session
    if make:
        wanted = worktree_pb2.CreateCheckpointRequest(session=found.id, request_id=new_request_id())
        with app.output.spinner("keeping the files …"):
            kept = app.connection.call(lambda daemon: daemon.worktrees.CreateCheckpoint, wanted)
        for warning in kept.warnings:
            app.output.note(f"rametctl: warning: {warning}")
    request = worktree_pb2.ListCheckpointsRequest(session=found.id)
    pages = app.connection.pages(lambda daemon: daemon.worktrees.ListCheckpoints, request)
    checkpoints = [checkpoint for page in pages for checkpoint in page.checkpoints]
    if app.output.json_mode:
        app.output.json([to_json(checkpoint) for checkpoint in checkpoints])
    elif not checkpoints:
        app.output.text("none yet: the first is made in a moment")
    else:
        _show(app, checkpoints)
        app.output.hint(f"to go back to one: rametctl rewind {session} NUMBER")


def _show(app: App, checkpoints: "Sequence[Checkpoint]") -> None:
    import time

    from ramet.jsonify import enum_name

    from rametctl.lines import Span
    from rametctl.render.format import age

    now = time.time()
    rows: list[list[Span]] = [
        [
            (str(each.number), "bold"),
            (age(each.create_time, now), "dim"),
            (WHY.get(reason := enum_name(each, "reason") or "", reason), ""),
            (str(each.turn), ""),
            (str(each.files), ""),
            (f"+{each.additions} -{each.deletions}", ""),
            (each.summary, "dim"),
        ]
        for each in checkpoints
    ]
    # Only a rewind makes a second line: without one the newest is where it stands.
    left_behind = any(each.abandoned for each in checkpoints)
    if left_behind:
        for each, row in zip(checkpoints, rows, strict=True):
            row.insert(1, ("here", "bold") if each.current else ("left behind", "dim") if each.abandoned else ("", ""))
    line = ("LINE",) if left_behind else ()
    headers = ("NUMBER", *line, "AGE", "WHY", "TURN", "FILES", "LINES", "ASKED FOR")
    table = app.output.table(headers, rows, shrink=[("ASKED FOR", 10)], right=frozenset({"NUMBER", "TURN", "FILES"}))
    app.output.show(*table)
