"""Commands at the lowest priority."""

from typing import Final

# The command must run in any case: if a tool is missing or the system forbids it, the priority stays unchanged.
#
# Most Linux desktops group processes by session (sched_autogroup_enabled), and `nice` then counts only within the group. Each
# command of Ramet begins a session, so the script lowers the priority of the group too. `nice` keeps disk access in the normal
# class; ionice (Linux) and taskpolicy (macOS) change the class.
_SCRIPT: Final = """
{ echo 19 >/proc/self/autogroup; } 2>/dev/null
if ionice -c 3 true 2>/dev/null; then set -- ionice -c 3 "$@"
elif taskpolicy -b true 2>/dev/null; then set -- taskpolicy -b "$@"; fi
exec nice -n 19 "$@"
"""

LOWEST: Final = ("sh", "-c", _SCRIPT, "sh")
"""Prefix of a command line for the lowest priority on processor and disk. The process id stays the same."""
