"""Commands in worktrees: follow them to their end over restarts of the daemon."""

from collections.abc import Iterator

from ramet.v1 import terminal_pb2
from ramet.v1.terminal_pb2 import Command, WatchOutputResponse

from rametctl.app import App
from rametctl.connection.follow import resumed
from rametctl.errors import TimedOutError, UnreachableError

MOMENT = 1.0
"""Seconds within which a command that cannot run has ended."""
LAST_LINE = 4096
"""Bytes at the end of a command's output to search for its last line."""


def pieces(app: "App", command_id: str, *, follow: bool) -> Iterator["WatchOutputResponse"]:
    """Yield a command's output as far as the daemon stores it; the last piece has the ended
    command.

    Its beginning is missing if it is long, and more if it is written faster than it is read here.
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
    """Print a command's output, and a note for each part that is not stored any more.

    Return the command once it has ended, None if it keeps running.
    """
    end = 0
    for piece in pieces(app, command_id, follow=follow):
        if (missing := piece.offset - end) > 0:
            app.output.note(f"rametctl: {missing:,} bytes are missing here: Ramet stores the last 16 MiB of an output")
        end = piece.offset + len(piece.data)
        if piece.data:
            app.output.json({"offset": piece.offset, "output": piece.data.decode("utf-8", "replace")}, stream=True)
            app.output.binary(piece.data)
        if piece.HasField("command"):
            return piece.command
    return None


def follow_to_end(app: "App", command: "Command", stop: str) -> "Command":
    """As `show_output`; Ctrl-C ends only the client, and a note shows ``stop``, which ends the
    command."""
    try:
        ended = show_output(app, command.id)
    except KeyboardInterrupt:
        app.output.erase_echo()
        app.output.note(f"the command keeps running; to stop it: {stop}")
        raise
    except TimedOutError as error:
        raise TimedOutError(
            f"timed out: {command.id} did not end, or no daemon could report it", hint=f"to stop it: {stop}"
        ) from error
    assert ended is not None  # the stream ends with it
    return ended


def ends_at_once(app: "App", command: "Command") -> "tuple[Command, str] | None":
    """Return a command that ends within a `MOMENT`, with its last line of output; None if it keeps
    running."""
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
