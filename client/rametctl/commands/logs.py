"""`rametctl logs`: read a session's conversation."""

import click
from ramet.jsonify import to_json
from ramet.v1.session_pb2 import Session

from rametctl.app import App
from rametctl.nouns.requests import remember
from rametctl.nouns.sessions import get_session, session_name, session_pages
from rametctl.nouns.transcripts import drawn, read_turns
from rametctl.options import Verb, session_argument
from rametctl.render.transcript import Conversation, open_requests


@click.command("logs", cls=Verb, short_help="Read a session's conversation.")
@session_argument
@click.option("-f", "--follow", is_flag=True, help="Continue live until Ctrl-C.")
@click.option("--turns", type=click.IntRange(min=1), metavar="N", help="Only the newest N turns.")
@click.option("--full", is_flag=True, help="Show results and thinking in full.")
@click.option("--no-pager", is_flag=True, help="Print without a pager.")
@click.pass_obj
def command(app: App, session: str, follow: bool, turns: int | None, full: bool, no_pager: bool) -> None:
    """Read the conversation of SESSION from its first turn, in $PAGER on a terminal.

    The pager (less) opens at the end; / searches forward, ? backward, g goes to the
    beginning. Long results and thinking are folded unless --full is given. --json
    prints the events behind it as one array. `rametctl events` lists every event.

    \b
    Examples:
      rametctl logs fix-login
      rametctl logs fix-login --turns 1 --full
      rametctl logs fix-login -f
    """
    from rametctl.commands.watch import watch_sessions

    if follow:
        watch_sessions(app, [session], turns=turns, full=full)
        return
    # JSON shows no path, so that the daemon's lookup of the name is enough.
    json = app.output.json_mode
    found = Session(id=session_name(app, session)) if json else get_session(app, session).session
    events, _ = read_turns(app, found, turns)
    of_sessions = any(event.prompt_queued.prompt.source.startswith("session:") for event in events)
    conversation = Conversation(worktree=found.worktree, names=_names(app) if of_sessions and not json else {})
    for event in events:
        conversation.add(event)
    entries = conversation.turns(turns) if turns is not None else conversation.entries
    if json:
        first = entries[0].seq if entries else 0
        app.output.json([to_json(event) for event in events if event.seq >= first])
        return
    remember(app, open_requests(entries))
    lines = drawn(conversation, entries, app.output.look(folded=not full))
    app.output.page(app.output.fitted(lines), paged=not no_pager, at_end=True)


def _names(app: App) -> dict[str, str]:
    return {
        each.id: each.name for page in session_pages(app.connection, repo="", archived=True) for each in page.sessions
    }
