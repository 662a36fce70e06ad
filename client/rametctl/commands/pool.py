"""`rametctl pool`: manage spare worktrees."""

import time
from collections.abc import Sequence

import click
from ramet.v1 import worktree_pb2
from ramet.v1.worktree_pb2 import Spare
from ramet.words import plural, size

from rametctl.app import App
from rametctl.console.lines import Line, Span
from rametctl.console.output import Output
from rametctl.options import Verb, VerbGroup, repo_option, repo_reference
from rametctl.render.format import age


@click.group("pool", cls=VerbGroup, short_help="Manage spare worktrees.")
@repo_option
@click.pass_context
def command(ctx: click.Context, repo: str | None) -> None:
    """Show, fill or drain the pool of a repository: spare worktrees, created and set up
    in advance, so that sessions start in milliseconds. `pool.size` sets their number.
    A spare has no branch and is no session.

    \b
    Examples:
      rametctl pool
      rametctl pool fill
      rametctl pool drain --repo shop
    """
    if ctx.invoked_subcommand is None:
        _status(ctx.find_object(App) or ctx.fail("no app"), repo, spares_only=True)


@command.command("status", cls=Verb, short_help="Show the spares and problems.")
@repo_option
@click.pass_obj
def status(app: App, repo: str | None) -> None:
    """Show the spares of a repository, the number of hits and misses, the free disk
    space, and the reason if no spares are created.

    \b
    Example:
      rametctl pool status --json | jq .held_reason
    """
    _status(app, repo)


@command.command("fill", cls=Verb, short_help="Create missing spares now.")
@repo_option
@click.pass_obj
def fill(app: App, repo: str | None) -> None:
    """Create the missing spares and update the others; return when all are ready.

    \b
    Example:
      rametctl pool fill
    """
    request = worktree_pb2.FillPoolRequest(repo=repo_reference(app, repo))
    answer = app.call(lambda daemon: daemon.worktrees.FillPool, request, doing="filling the pool …")
    app.output.answer(
        answer.spares,
        _table(app.output, answer.spares),
        empty="There are no spares; for the reason run: rametctl pool status",
    )


@command.command("drain", cls=Verb, short_help="Remove all spares.")
@repo_option
@click.pass_obj
def drain(app: App, repo: str | None) -> None:
    """Remove the spares of a repository. Ramet creates new ones with the next session;
    set `pool.size = 0` to prevent that.

    \b
    Example:
      rametctl pool drain --repo shop
    """
    request = worktree_pb2.DrainPoolRequest(repo=repo_reference(app, repo))
    answer = app.call(lambda daemon: daemon.worktrees.DrainPool, request, doing="draining the pool …")
    app.output.answer(answer.spares, [f"{plural(len(answer.spares), 'spare')} removed"])


def _status(app: App, repo: str | None, *, spares_only: bool = False) -> None:
    """Print the pool; as JSON one object, or with ``spares_only`` an array of its spares."""
    request = worktree_pb2.GetPoolRequest(repo=repo_reference(app, repo))
    answer = app.call(lambda daemon: daemon.worktrees.GetPool, request)
    app.output.answer(answer.spares if spares_only else answer, _table(app.output, answer.spares))
    ready = sum(spare.state == "ready" for spare in answer.spares)
    app.output.text(
        f"{ready} of {answer.size} ready, {size(answer.disk_free_bytes)} free on the disk; "
        f"since the daemon's start {plural(answer.claims, 'session')} got a spare, {answer.misses} did not"
    )
    if answer.held_reason:
        app.output.text(f"No spares are created now: {answer.held_reason}")


def _table(output: Output, spares: "Sequence[Spare]") -> list[Line]:
    now = time.time()
    rows: list[list[Span]] = [
        [
            (spare.id, "bold"),
            (spare.state, ""),
            ("live" if spare.warm_agent else "-", ""),
            (spare.commit[:10], ""),
            (size(spare.bytes), ""),
            (age(spare.create_time, now), "dim"),
            (spare.reason or "-", "yellow"),
            (spare.path, "dim"),
        ]
        for spare in spares
    ]
    headers = ["SPARE", "STATE", "AGENT", "COMMIT", "SIZE", "AGE", "PROBLEM", "PATH"]
    shrink = [("PATH", 8), ("PROBLEM", 20), ("PATH", 1)]
    return output.table(headers, rows, shrink=shrink, right=frozenset({"SIZE", "AGE"})) if rows else []
