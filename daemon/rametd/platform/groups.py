"""Child processes in separate process groups, so that their descendants end with them, with bounded
output; and child processes of the lowest priority."""

import asyncio
import contextlib
import os
import re
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

# The command must run in any case: if a tool is missing or the system forbids it, the priority
# stays unchanged.
#
# Most Linux desktops group processes by session (sched_autogroup_enabled), and `nice` then counts
# only within the group. Each command of Ramet begins a session, so the script lowers the priority
# of the group too. `nice` keeps disk access in the normal class; ionice (Linux) and taskpolicy
# (macOS) change the class.
_SCRIPT: Final = """
{ echo 19 >/proc/self/autogroup; } 2>/dev/null
if ionice -c 3 true 2>/dev/null; then set -- ionice -c 3 "$@"
elif taskpolicy -b true 2>/dev/null; then set -- taskpolicy -b "$@"; fi
exec nice -n 19 "$@"
"""

LOWEST: Final = ("sh", "-c", _SCRIPT, "sh")
"""Prefix of a command line for the lowest priority on processor and disk. The process id stays the
same."""

MOST_WORDS: Final = 16 << 20
"""Maximum bytes that a child process may print as messages, and a short command as its output."""


_SWITCHES: Final = re.compile(r"ctxt_switches:\s*(\d+)")
LOOK_S: Final = 0.2
SILENT_S: Final = 1.0
"""How long processes that an ended one has left must be silent before its pipes are closed."""


class StuckError(Exception):
    """Raised for a process that waits without end."""


class OutputError(Exception):
    """Raised for a program that prints without end. The message has no subject."""


async def start(*argv: str, **options: Any) -> asyncio.subprocess.Process:
    """Start a program as the leader of a new group. On a cancellation, end the group. Raise
    OSError.

    If `create_subprocess_exec` is cancelled between the fork and its first read, it kills only the
    leader, and waits until the processes that the leader has started close its pipes.
    """
    starting = asyncio.ensure_future(asyncio.create_subprocess_exec(*argv, start_new_session=True, **options))
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        with contextlib.suppress(OSError):
            await end(await starting)
        raise


async def end(process: asyncio.subprocess.Process) -> None:
    """End a group whose leader runs: SIGTERM, on which git removes its lock files, then SIGKILL.
    Hang up on processes that a leader left."""
    if process.returncode is not None:
        hang_up(process)
        return
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        hang_up(process)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), 3.0)
            return


def hang_up(process: asyncio.subprocess.Process) -> None:
    """Close this end of a process's pipes. `Process.wait` waits for their end, which does not come
    while output is unread or while a process outside the group has them open."""
    transport: asyncio.SubprocessTransport = process._transport  # type: ignore[attr-defined]  # the only way to it
    for descriptor in range(3):
        if (pipe := transport.get_pipe_transport(descriptor)) is not None:
            pipe.close()


async def communicate(
    process: asyncio.subprocess.Process,
    stdin: bytes | None = None,
    *,
    most: int | None = MOST_WORDS,
    patience: float | None = None,
) -> tuple[bytes, bytes]:
    """Write ``stdin`` to a process, wait for its end, and return its standard output and error.

    End the group and raise OutputError beyond ``most`` bytes of output (None: any number) or
    `MOST_WORDS` bytes of errors: a server or a filter decides what its client prints, and
    `Process.communicate` would take all memory. It would also wait for processes that the program
    has left in the background with its pipes, such as a server that a hook starts; this hangs up
    on them once they are silent.

    End the group and raise StuckError if the process does nothing for ``patience`` seconds: it
    prints nothing, neither computes nor reads, and has no child that could. Linux only.
    """
    heard = _Heard()
    reading = asyncio.gather(
        _feed(process, stdin),
        read(process, process.stdout, most, heard),
        read(process, process.stderr, MOST_WORDS, heard),
    )
    try:
        before, silence = -1, 0.0
        rest = _Rest(process.pid)
        while not (await asyncio.wait({reading}, timeout=LOOK_S))[0]:
            silence = silence + LOOK_S if process.returncode is not None and heard.size == before else 0.0
            before = heard.size
            if silence >= SILENT_S:
                hang_up(process)
            if patience is not None and process.returncode is None and await rest.lasts(patience, heard.size):
                await end(process)
                raise StuckError
        _, (output, more), (errors, worse) = await reading
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)  # else asyncio logs that no task took its end
    await process.wait()
    if more or worse:
        raise OutputError(f"printed more than {(most if more else None) or MOST_WORDS:,} bytes and was ended")
    return output, errors


class _Rest:
    """How long a process has done nothing."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._clock = asyncio.get_running_loop().time
        self._since = self._looked = self._clock()
        self._state: tuple[str, int] = ("", 0)

    async def lasts(self, patience: float, heard: int) -> bool:
        now = self._clock()
        if now < self._looked + patience / 4:
            return False
        self._looked = now
        state = (await asyncio.to_thread(_doings, self._pid), heard)
        if not state[0] or state != self._state:
            self._since, self._state = now, state
        return now - self._since >= patience


def _doings(pid: int) -> str:
    """Return the processor time and the waits of a process without children, which change while it
    does anything, also on a slow disk; "" with children, or if unknown."""
    try:
        found = [Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2]]
        for thread in sorted(Path(f"/proc/{pid}/task").iterdir()):
            if (thread / "children").read_text(encoding="ascii"):
                return ""
            found += _SWITCHES.findall((thread / "status").read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return ""
    return " ".join(found)


@dataclass(slots=True)
class _Heard:
    size: int = 0


async def read(
    process: asyncio.subprocess.Process,
    stream: asyncio.StreamReader | None,
    most: int | None,
    heard: _Heard | None = None,
) -> tuple[bytes, bool]:
    """Return a stream of a process up to its end, or its first ``most`` bytes after ending the
    group, and whether there was more. Add the number of bytes to ``heard``."""
    pieces: list[bytes] = []
    size = 0
    while stream is not None and (piece := await stream.read(1 << 16)):
        pieces.append(piece)
        size += len(piece)
        if heard is not None:
            heard.size += len(piece)
        if most is not None and size > most:
            await end(process)
            return b"".join(pieces)[:most], True
    return b"".join(pieces), False


async def _feed(process: asyncio.subprocess.Process, data: bytes | None) -> None:
    if process.stdin is None:
        return
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        process.stdin.write(data or b"")
        await process.stdin.drain()
    process.stdin.close()
