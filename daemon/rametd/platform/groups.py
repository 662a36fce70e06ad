"""Child processes in separate process groups, so that their descendants end with them, and child
processes of the lowest priority."""

import asyncio
import contextlib
import os
import signal
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
    """End a group whose leader runs: SIGTERM, on which git removes its lock files, then SIGKILL."""
    if process.returncode is not None:
        return
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), 3.0)
            return
