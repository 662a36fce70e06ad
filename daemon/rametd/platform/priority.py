"""Commands that give way to everybody else's."""

from typing import Final

# Nothing of it may fail the command: a tool that is missing, or a system that forbids it, leaves the priority as it is.
#
# On Linux `nice` counts within a group only where the kernel makes one of each session (sched_autogroup_enabled, as on most desktops): beside
# the others the group counts as a whole, and every command of ours begins a session. So the group is told too. `nice` leaves disk access at a
# low priority in the class that everybody is in; ionice (Linux) and taskpolicy (macOS) lead out of it.
_SCRIPT: Final = """
{ echo 19 >/proc/self/autogroup; } 2>/dev/null
if ionice -c 3 true 2>/dev/null; then set -- ionice -c 3 "$@"
elif taskpolicy -b true 2>/dev/null; then set -- taskpolicy -b "$@"; fi
exec nice -n 19 "$@"
"""

LOWEST: Final = ("sh", "-c", _SCRIPT, "sh")
"""What a command line begins with that is to have the lowest priority, on processor and disk. The process stays the same one."""
