"""`rametctl attach`: go into a session's conversation."""

import os
import sys

import click

from rametctl.app import App
from rametctl.options import Verb, session_argument

TERMINAL_VARIABLES = (
    "COLORFGBG", "COLORTERM", "DISPLAY", "GHOSTTY_", "ITERM_", "KITTY_", "LANG", "LC_", "NO_COLOR", "SSH_CONNECTION", "SSH_TTY",
    "STY", "TERM", "TMUX", "VTE_VERSION", "WAYLAND_DISPLAY", "WEZTERM_", "WT_SESSION",
)  # fmt: skip
"""How the names of variables begin that tell a program about the terminal that it runs in."""


@click.command("attach", cls=Verb, short_help="Go into a session's conversation.")
@session_argument
@click.option("--native", is_flag=True, help="Use the agent's own program.")
@click.option("--interrupt", is_flag=True, help="End a running turn first.")
@click.pass_obj
def command(app: App, session: str, native: bool, interrupt: bool) -> None:
    """With --native the agent's own program (Claude Code) opens with the conversation, in
    the worktree, with the session's mode, rules and environment. Ramet ends its agent
    first and keeps prompts that come meanwhile. Leave the program as usual: its turns
    are then part of the session, with cost and checkpoint.

    \b
    Examples:
      rametctl attach fix-login --native
      rametctl attach fix-login --native --interrupt
    """
    if not native:
        raise click.UsageError("add --native; to follow a session in the terminal: rametctl watch SESSION")
    attach_native(app, session, interrupt=interrupt)


def attach_native(app: App, session: str, *, interrupt: bool) -> None:
    """Become the agent's program. The daemon leases the conversation to this process, whose pid and start time survive `exec`."""
    from ramet.v1 import session_pb2

    from rametctl.errors import ClientError
    from rametctl.sessions import get_session

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
    with app.output.spinner("the agent hands over …"):
        answer = app.connection.call(lambda daemon: daemon.sessions.AttachNative, request)
    terminal = {name: value for name, value in app.environ.items() if name.startswith(TERMINAL_VARIABLES)}
    try:
        os.chdir(answer.worktree)
        os.execvpe(answer.argv[0], list(answer.argv), {**answer.environment, **terminal})  # noqa: S606  it is the person's agent
    except OSError as error:
        raise ClientError(f"cannot start {answer.argv[0]}: {error}", hint="rametctl doctor") from error
