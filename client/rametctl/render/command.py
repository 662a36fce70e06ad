"""Name a command in a worktree, and describe how it ended."""

import shlex
import signal

from ramet.jsonify import enum_name
from ramet.v1.terminal_pb2 import Command


def exit_code(command: Command) -> int:
    """Return the command's exit code, as a shell reports it; 1 if unknown."""
    kind, _, value = command.exit_status.partition(" ")
    if kind == "code" and value.isdigit():
        return int(value)
    if kind == "signal" and value in signal.Signals.__members__:
        return 128 + signal.Signals[value]
    return 1


def how_it_ended(command: Command) -> str:
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


def title(command: Command) -> str:
    """Return its name, or its command line."""
    return command.name or shlex.join(command.argv)
