"""Commands in worktrees: follow them to their end over restarts of the daemon, and report how they ended."""

import shlex
from collections.abc import Iterator

from ramet.jsonify import enum_name
from ramet.v1 import terminal_pb2
from ramet.v1.terminal_pb2 import Command, WatchOutputResponse

from rametctl.app import App
from rametctl.errors import TimedOutError, UnreachableError
from rametctl.follow import resumed

MOMENT = 1.0
"""Seconds within which a command that cannot run has ended."""
LAST_LINE = 4096
"""Bytes at the end of a command's output to search for its last line."""


def pieces(app: "App", command_id: str, *, follow: bool) -> Iterator["WatchOutputResponse"]:
    """Yield a command's output without gaps; the last piece has the ended command.

    With ``follow``, raises what `resumed` raises.
    """
    offset = 0

    # The command keeps running while the daemon is away.
    def request() -> terminal_pb2.WatchOutputRequest:
        return terminal_pb2.WatchOutputRequest(command=command_id, offset=offset, follow=follow)

    if follow:
        stream = resumed(app.connection, lambda daemon: daemon.terminals.WatchOutput, request)
    else:
        stream = app.connection.stream(lambda daemon: daemon.terminals.WatchOutput, request())
    for piece in stream:
        offset = piece.offset + len(piece.data)
        yield piece
        if piece.HasField("command"):
            return


def show_output(app: "App", command_id: str, *, follow: bool = True) -> "Command | None":
    """Print a command's output; return the command once it has ended, None if it keeps running."""
    for piece in pieces(app, command_id, follow=follow):
        if piece.data:
            app.output.json({"offset": piece.offset, "output": piece.data.decode("utf-8", "replace")}, stream=True)
            app.output.binary(piece.data)
        if piece.HasField("command"):
            return piece.command
    return None


def follow_to_end(app: "App", command: "Command", stop: str) -> "Command":
    """As `show_output`; Ctrl-C ends only the client, and a note shows ``stop``, which ends the command."""
    try:
        ended = show_output(app, command.id)
    except KeyboardInterrupt:
        begin = "\n" if app.output.error_terminal else ""
        app.output.note(f"{begin}the command keeps running; to stop it: {stop}")
        raise
    except TimedOutError as error:
        raise TimedOutError(
            f"timed out: {command.id} did not end, or no daemon could report it", hint=f"to stop it: {stop}"
        ) from error
    assert ended is not None  # the stream ends with it
    return ended


def ends_at_once(app: "App", command: "Command") -> "tuple[Command, str] | None":
    """Return a command that ends within a `MOMENT`, with its last line of output; None if it keeps running."""
    tail = b""
    request = terminal_pb2.WatchOutputRequest(command=command.id, follow=True)
    try:
        for piece in app.connection.stream(lambda daemon: daemon.terminals.WatchOutput, request, timeout=MOMENT):
            tail = (tail + piece.data)[-LAST_LINE:]
            if piece.HasField("command"):
                lines = tail.decode("utf-8", "replace").strip().splitlines()
                return piece.command, lines[-1].strip() if lines else ""
    except (TimedOutError, UnreachableError):
        pass  # it keeps running, even without a daemon
    return None


def exit_code(command: "Command") -> int:
    """Return the command's exit code, as a shell reports it; 1 if unknown."""
    import signal

    kind, _, value = command.exit_status.partition(" ")
    if kind == "code" and value.isdigit():
        return int(value)
    if kind == "signal" and value in signal.Signals.__members__:
        return 128 + signal.Signals[value]
    return 1


def how_it_ended(command: "Command") -> str:
    """Describe a command's state, such as "failed (code 3)"."""
    match enum_name(command, "state"):
        case "exited":
            return "done" if command.exit_status == "code 0" else f"failed ({command.exit_status})"
        case "stopped":
            return f"ended: {command.stop_reason}"
        case "lost":
            return "lost: exit code unknown"
        case state:
            return state or "unknown"


def title(command: "Command") -> str:
    """Return its name, or its command line."""
    return command.name or shlex.join(command.argv)
