"""`rametctl conflicts`: show which sessions conflict."""

from collections.abc import Sequence

import click
from ramet.v1 import worktree_pb2
from ramet.v1.worktree_pb2 import ListConflictsRequest, ListConflictsResponse, WatchConflictsResponse

from rametctl.app import App
from rametctl.connection.follow import resumed
from rametctl.console.lines import Line, line
from rametctl.errors import UsageError
from rametctl.nouns.sessions import session_name, session_pages
from rametctl.options import Verb, repo_option, repo_reference, sessions_argument
from rametctl.render.conflicts import conflict_lines


@click.command("conflicts", cls=Verb, short_help="Show which sessions conflict.")
@sessions_argument(required=False)
@click.option("--clean", "with_clean", is_flag=True, help="Include pairs without conflicts.")
@click.option("--matrix", is_flag=True, help="Show all pairs as a matrix below.")
@click.option("-w", "--watch", is_flag=True, help="Follow until Ctrl-C.")
@repo_option
@click.pass_obj
def command(app: App, sessions: tuple[str, ...], with_clean: bool, matrix: bool, watch: bool, repo: str | None) -> None:
    """Compare the work of all sessions of the repository with each other and with
    their bases; with SESSION, compare only these with all others. Uncommitted and
    untracked files are included. Nothing is merged or changed.

    Shows the files and lines, conflicts first, and the order of landing with the
    fewest conflicts. --matrix adds for each pair whether git can merge it: "."
    different files, "s" the same file in different places, "X" conflict.

    \b
    Examples:
      rametctl conflicts
      rametctl conflicts fix-login --json | jq '.[] | select(.red)'
      rametctl conflicts --watch
    """
    if watch and (with_clean or matrix):
        raise UsageError("--watch shows only pairs with conflicts", hint="omit --clean and --matrix")
    if matrix and sessions:
        raise UsageError("--matrix shows all sessions", hint="omit SESSION")
    request = worktree_pb2.ListConflictsRequest(
        repo=_repo(app, repo, sessions), sessions=_ids(app, sessions), include_clean=with_clean
    )
    if watch:
        _watch(app, request)
        return
    answer = app.call(lambda daemon: daemon.worktrees.ListConflicts, request, doing="comparing …")
    app.output.json(answer.conflicts)
    if not app.output.json_mode:
        _show(app, answer, every_pair=not sessions, matrix=matrix)


def _ids(app: App, sessions: tuple[str, ...]) -> list[str]:
    return [session_name(app, each) for each in sessions]


def _repo(app: App, repo: str | None, sessions: tuple[str, ...]) -> str:
    """Return the repository's reference; "" if sessions determine it, or if the current directory
    is in none."""
    if repo is not None:
        return repo_reference(app, repo)
    if sessions:
        return ""
    here = app.repo_here()
    if here is None:
        raise UsageError("the current directory is in no repository", hint="give --repo, or name sessions")
    return here


def _show(
    app: App, answer: "ListConflictsResponse | WatchConflictsResponse", *, every_pair: bool, matrix: bool = False
) -> None:
    shown = conflict_lines(app.output, answer, _names(app, answer), every_pair=every_pair, matrix=matrix)
    app.output.show(*shown)


def _names(app: App, answer: "ListConflictsResponse | WatchConflictsResponse") -> dict[str, str]:
    """Return the names of the compared sessions, in the answer's order."""
    known = {each.id: each.name for page in session_pages(app.connection, repo="") for each in page.sessions}
    return {identity: known.get(identity, identity) for identity in answer.session_ids}


def _watch(app: App, request: "ListConflictsRequest") -> None:
    asked = worktree_pb2.WatchConflictsRequest(repo=request.repo, sessions=request.sessions)
    if not app.output.terminal:
        stream = resumed(
            app.connection,
            lambda daemon: daemon.worktrees.WatchConflicts,
            lambda: asked,
            lambda words: app.output.note(f"rametctl: {words}"),
        )
        for answer in stream:
            app.output.json(answer, stream=True)
            if not app.output.json_mode:
                _show(app, answer, every_pair=not request.sessions)
        return
    with app.output.live() as view:
        shown: Sequence[Line] = [line(("comparing …", "dim"))]
        view.update(shown)
        stream = resumed(
            app.connection,
            lambda daemon: daemon.worktrees.WatchConflicts,
            lambda: asked,
            # Print it below the last output: on standard error it would overwrite the view.
            lambda words: view.update([*shown, line((words, "yellow"))]),
        )
        for answer in stream:
            shown = conflict_lines(app.output, answer, _names(app, answer), every_pair=not request.sessions)
            view.update(shown)
