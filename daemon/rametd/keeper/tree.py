"""End the processes that an agent started: its descendants, and all that carry its tags. Standard
library only.

The keeper searches below itself: on Linux it is the subreaper of orphans, which become its
children. If the keeper is gone, the daemon searches below the agent. An agent's shell commands run
in separate process sessions, so process groups do not help.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress

from rametd.platform import processes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

PAUSE = 0.02
SWEEP_GRACE = 1.0
"""Maximum number of seconds between SIGTERM and SIGKILL for descendants."""
GIVE_UP = 30.0
"""Seconds to wait for a process that SIGKILL does not end (it hangs in the kernel) before it is
reported as left."""


if sys.platform == "darwin":

    def _has_children() -> bool:
        """Return False: without subreapers, children say nothing about orphans."""
        return False

else:

    def _has_children() -> bool:
        """Return whether this process has a child, a zombie included, without reaping it."""
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return False
        return True


class Tree:
    """The processes below ``root`` (never itself), those with all ``tags`` in their environment,
    and those in ``cgroup``."""

    def __init__(self, root: processes.Process | None, tags: Mapping[str, str], cgroup: str | None) -> None:
        self.root, self.tags, self.cgroup = root, tags, cgroup
        self._is_keeper = root is not None and root.pid == os.getpid()
        self.known: dict[processes.Process, None] = {}
        """All processes found so far, including former descendants that have another parent now."""
        self.left: list[int] = []
        """Pids that survived SIGKILL."""

    def look(self) -> list[processes.Process]:
        """Return all of them that live now. Blocks for some milliseconds."""
        everything = processes.snapshot()
        found = processes.tagged(self.tags)
        # An ended root has no descendants; its pid may have been reused.
        if self.root is not None and everything.get(self.root.pid) == self.root:
            found += processes.descendants([self.root.pid], everything)
        self.known.update((process, None) for process in found if process != self.root and process.pid != os.getpid())
        # Equal means the same pid and start time; update it, as it may have become a zombie.
        now = ((process, everything.get(process.pid)) for process in self.known)
        return [process for process, seen in now if seen is not None and seen == process and not seen.zombie]

    def end(self, grace: float) -> Iterator[float]:
        """Send each SIGTERM, after ``grace`` seconds SIGKILL until none is left. Yield the seconds
        to wait before the next step."""
        began = time.monotonic()
        asked: set[processes.Process] = set()
        empty = 0
        # The race: a search misses a process whose parent forked after it was listed, and ended
        # before its children were listed. So the end needs two empty searches in a row, and a
        # keeper without children, since every orphan becomes its child.
        while empty < 2:
            found = self.look()
            empty = 0 if found or (self._is_keeper and _has_children()) else empty + 1
            waited = time.monotonic() - began
            if waited > GIVE_UP:
                self.left = [process.pid for process in found]
                return
            if found and waited >= grace and self.cgroup is not None:
                self._kill_cgroup(self.cgroup)
            for process in found:
                if waited >= grace:
                    self._signal(process, signal.SIGKILL)
                elif process not in asked:
                    asked.add(process)
                    self._signal(process, signal.SIGTERM)
            yield PAUSE if found or empty else 0.0

    @staticmethod
    def _signal(process: processes.Process, signum: int) -> None:
        with suppress(PermissionError):  # it changed its user (sudo); `left` will name it
            processes.send_signal(process.pid, process.start, signum)

    @staticmethod
    def _kill_cgroup(cgroup: str) -> None:
        path = os.path.join(cgroup, "cgroup.kill")
        with suppress(OSError), open(path, "w", encoding="ascii") as file:  # before Linux 5.14 there are only signals
            file.write("1")
