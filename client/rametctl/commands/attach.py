"""`rametctl attach`: open a session's conversation."""

import os
import sys

import click
from ramet.v1 import session_pb2
from ramet.v1.session_pb2 import Session

from rametctl.app import App
from rametctl.errors import ClientError, UsageError
from rametctl.nouns.sessions import get_session, session_pages
from rametctl.options import Verb, complete_session
from rametctl.render.session import reference

TERMINAL_VARIABLES = (
    "COLORFGBG", "COLORTERM", "DISPLAY", "GHOSTTY_", "ITERM_", "KITTY_", "LANG", "LC_", "NO_COLOR", "SSH_CONNECTION", "SSH_TTY",
    "STY", "TERM", "TMUX", "VTE_VERSION", "WAYLAND_DISPLAY", "WEZTERM_", "WT_SESSION",
)  # fmt: skip
"""Prefixes of the variables that describe a program's terminal."""


@click.command("attach", cls=Verb, short_help="Open a session's conversation full screen.")
@click.argument("session", metavar="[SESSION]", required=False, shell_complete=complete_session)
@click.option("--last", is_flag=True, help="The session that changed last.")
@click.option("--native", is_flag=True, help="Use the agent's own program.")
@click.option("--interrupt", is_flag=True, help="With --native: end a running turn first.")
@click.pass_obj
def command(app: App, session: str | None, last: bool, native: bool, interrupt: bool) -> None:
    """Open the conversation of SESSION full screen: follow it, write to it, answer its requests.
    Several terminals may do so at once. Esc interrupts the turn, ctrl-q detaches; the session
    continues.

    With --native, the agent's own program (Claude Code) opens the conversation, in the worktree,
    with the session's mode, rules and environment. Ramet ends its agent first, and holds prompts
    that arrive meanwhile. Leave the program as usual: its turns are then part of the session, with
    cost and checkpoint.

    \b
    Examples:
      rametctl attach fix-login
      rametctl attach --last
      rametctl attach fix-login --native
    """
    if (session is None) != last:
        raise UsageError("name one session, or give --last", hint="see: rametctl attach --help")
    if interrupt and not native:
        raise UsageError("--interrupt needs --native", hint="Esc interrupts in the dashboard")
    found = get_session(app, session).session if session is not None else _newest(app)
    if native:
        attach_native(app, found.id, interrupt=interrupt)
    elif not app.on_terminal:
        raise UsageError("attach needs a terminal", hint=f"use: rametctl watch {reference(found)}")
    else:
        from rametctl.dashboard import run

        run(app, only=found.id)


def _newest(app: App) -> "Session":
    sessions = [each for page in session_pages(app.connection, repo=app.repo_here() or "") for each in page.sessions]
    if not sessions:
        raise ClientError("no sessions here", hint="create one: rametctl new PROMPT")
    return max(sessions, key=lambda each: (each.update_time.seconds, each.update_time.nanos))


def attach_native(app: App, session: str, *, interrupt: bool) -> None:
    """Exec the agent's program. The daemon leases the conversation to this process, whose pid and
    start time survive `exec`."""
    if not (sys.stdin.isatty() and app.output.terminal):
        raise click.UsageError("stdin and stdout must be a terminal")
    found = get_session(app, session).session
    request = session_pb2.AttachNativeRequest(
        session=found.id,
        pid=os.getpid(),
        terminal=os.ttyname(sys.stdin.fileno()).removeprefix("/dev/"),
        interrupt=interrupt,
        mcp_command=[sys.executable, "-m", "rametctl", "mcp"],
    )
    answer = app.call(lambda daemon: daemon.sessions.AttachNative, request, doing="ending the session's agent …")
    terminal = {name: value for name, value in app.environ.items() if name.startswith(TERMINAL_VARIABLES)}
    try:
        os.chdir(answer.worktree)
        os.execvpe(answer.argv[0], list(answer.argv), {**answer.environment, **terminal})  # noqa: S606  it is the person's agent
    except OSError as error:
        raise ClientError(f"cannot start {answer.argv[0]}: {error}", hint="rametctl doctor") from error
