"""`rametctl ls`: list sessions."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click
from ramet.v1.session_pb2 import Session

from rametctl.app import App
from rametctl.console.lines import Line, line
from rametctl.errors import ClientError
from rametctl.nouns.sessions import list_request, session_pages
from rametctl.options import STATES, Verb, repo_option, repo_reference
from rametctl.render.session import by_urgency, in_tree_order, left_out, outcome, session_table

if TYPE_CHECKING:
    from rametctl.view.model import View

REDRAW = 0.2
"""Minimum number of seconds between two refreshes of `--watch`."""
TICK = 1.0
"""Maximum number of seconds between two refreshes."""


@dataclass(frozen=True, slots=True)
class Query:
    """Scope of the list. ``repo`` "" means all repositories. ``found``: whether it is the
    repository of the current directory."""

    repo: str
    states: tuple[str, ...]
    archived: bool
    tree: bool
    around: bool
    quiet: bool


@click.command("ls", cls=Verb, short_help="List sessions.")
@click.option("-a", "--all", "everything", is_flag=True, help="All repositories, including archived sessions.")
@click.option(
    "--state", "states", type=click.Choice(STATES), multiple=True, help="Only sessions in this state (repeatable)."
)
@click.option("--tree", is_flag=True, help="Show each session below its parent.")
@click.option("-w", "--watch", is_flag=True, help="Follow until Ctrl-C.")
@click.option("-q", "--quiet", is_flag=True, help="Print only names.")
@repo_option
@click.pass_obj
def command(
    app: App, everything: bool, states: tuple[str, ...], tree: bool, watch: bool, quiet: bool, repo: str | None
) -> None:
    """List the sessions of the current directory's repository, oldest first.

    Outside a repository, list those of all repositories. --all lists all
    repositories and archived sessions too. SINCE is the time in this state. NOW is the reason why a
    session waits, its activity, or its last words. BRANCH is shown if any differs from its
    session's name.

    \b
    Examples:
      rametctl ls
      rametctl ls --all --state waiting --state failed
      rametctl ls --json | jq -r '.[] | select(.state == "idle").name'
    """
    if repo is not None:
        where, around = repo_reference(app, repo), False
    else:
        here = None if everything else app.repo_here()
        where, around = here or "", here is not None
    query = Query(where, states, everything or "archived" in states, tree, around, quiet)
    if watch:
        _watch(app, query)
        return
    sessions, elsewhere = _sessions(app, query)
    app.output.json(sessions)
    if quiet:
        app.output.raw(*(session.name for session in sessions))
    elif not app.output.json_mode:
        app.output.show(*_table(app, query, sessions))
        if elsewhere:
            app.output.hint(f"({elsewhere} in other repositories: --all)")


def _sessions(app: App, query: Query) -> "tuple[list[Session], int]":
    """Return the sessions, and the number of those in repositories other than the current one."""
    try:
        pages = list(session_pages(app.connection, repo=query.repo, states=query.states, archived=query.archived))
    except ClientError as error:
        if not _is_new_repo(query, error):
            raise
        others = session_pages(app.connection, repo="")
        return [], sum(len(page.sessions) for page in others)
    return [session for page in pages for session in page.sessions], pages[-1].elsewhere


def _is_new_repo(query: Query, error: ClientError) -> bool:
    """Return whether the current directory's repository is not registered, because it has had no
    session."""
    return query.around and error.reason == "REPO_NOT_FOUND"


def _table(app: App, query: Query, sessions: Sequence["Session"]) -> list["Line"]:
    if not sessions:
        where = "here" if query.around or query.repo else "yet"
        what = f"no {' or '.join(query.states)} sessions {where}" if query.states else f"no sessions {where}"
        return [line(f"{what}; create one: rametctl new PROMPT")]
    return _table_of(app, query, sessions, _rows(query, sessions))


def _rows(query: Query, sessions: Sequence["Session"]) -> list[tuple[int, "Session"]]:
    return in_tree_order(sessions) if query.tree else [(0, session) for session in sessions]


def _table_of(
    app: App, query: Query, sessions: Sequence["Session"], rows: Sequence[tuple[int, "Session"]]
) -> list["Line"]:
    """Return the table of ``rows``, a subset of ``sessions``."""
    with_repo = not query.repo and len({session.repo for session in sessions}) > 1
    return session_table(app.output, rows, time.time(), with_repo=with_repo)


def _watch(app: App, query: Query) -> None:
    """Show the sessions: on a terminal as a table, else a line for each session, then for each
    change.

    List them at every change of the view and at every tick: some changes, such as a removed
    worktree, cause no event.
    """
    from rametctl.view.live import draw

    seen: dict[str, bytes] = {}
    if not app.output.terminal:

        async def print_changes(view: "View") -> None:
            _print_changes(app, await _listed(view, query), seen)

        draw(app, print_changes, every=REDRAW, tick=TICK)
        return
    with app.output.live() as live:

        async def update(view: "View") -> None:
            live.update(_fitting_table(app, query, await _listed(view, query)))

        draw(app, update, every=REDRAW, tick=TICK)


async def _listed(view: "View", query: Query) -> "list[Session]":
    from rametctl.connection.link import pages

    request = list_request(query.repo, query.states, archived=query.archived)
    found = pages(view.link, lambda daemon: daemon.sessions.ListSessions, request)
    try:
        return [session async for page in found for session in page.sessions]
    except ClientError as error:
        if not _is_new_repo(query, error):
            raise
        return []


def _fitting_table(app: App, query: Query, sessions: Sequence["Session"]) -> list["Line"]:
    """Return the table with the rows that fit on the terminal, first sessions that need a person,
    and a count of the others."""
    # One line is for the headers, and one for the cursor.
    room = max(app.output.height - 2, 2)
    if len(sessions) <= room:
        return _table(app, query, sessions)
    if not query.tree:
        sessions = by_urgency(sessions)
    rows = _rows(query, sessions)
    return [
        *_table_of(app, query, sessions, rows[: room - 1]),
        left_out([session for _, session in rows[room - 1 :]]),
    ]


def _print_changes(app: App, sessions: Sequence["Session"], seen: dict[str, bytes]) -> None:
    """Print a line for each session that differs from what was ``seen``."""
    for session in sessions:
        # The number of the newest event changes with every word of the agent: ignore it.
        key = type(session)()
        key.CopyFrom(session)
        key.ClearField("last_seq")
        key.ClearField("update_time")
        state = key.SerializeToString(deterministic=True)
        if seen.get(session.id) != state:
            seen[session.id] = state
            app.output.answer(session, [outcome(session)], stream=True)
    for gone in seen.keys() - {session.id for session in sessions}:
        del seen[gone]
        app.output.show(line(f"{gone} is no longer in the list"))
