"""Ending what an agent started: descendants, and whatever carries its tag, wherever it went. Standard library only.

The keeper walks down from itself, for orphans come to it (on Linux it is their subreaper). Where the keeper is gone, the daemon
walks down from the agent. Bash tools of an agent run in sessions of their own, so process groups are of no use here.
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
"""Seconds that leftovers get between SIGTERM and SIGKILL, at most."""
GIVE_UP = 30.0
"""Seconds after which a process that cannot be killed (it hangs in the kernel) is named instead of waited for."""


if sys.platform == "darwin":

    def _has_children() -> bool:
        """Without subreapers children say nothing about orphans."""
        return False

else:

    def _has_children() -> bool:
        """Whether this process has a child, a zombie included; it stays to be waited for."""
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return False
        return True


class Tree:
    """The processes below ``root`` (never itself), those with all ``tags`` in their environment, and those in ``cgroup``."""

    def __init__(self, root: processes.Process | None, tags: Mapping[str, str], cgroup: str | None) -> None:
        self.root, self.tags, self.cgroup = root, tags, cgroup
        self._is_keeper = root is not None and root.pid == os.getpid()
        self.known: dict[processes.Process, None] = {}
        """Everything that was seen; a process that was ours once stays so, whoever its parent is by now."""
        self.left: list[int] = []
        """Pids that outlived everything."""

    def look(self) -> list[processes.Process]:
        """All that lives now. Blocks for some milliseconds."""
        everything = processes.snapshot()
        found = processes.tagged(self.tags)
        # A root that ended has no descendants: its pid may be somebody else's.
        if self.root is not None and everything.get(self.root.pid) == self.root:
            found += processes.descendants([self.root.pid], everything)
        self.known.update((process, None) for process in found if process != self.root and process.pid != os.getpid())
        # Equal means the same pid and start time: read again, for it may have become a zombie.
        now = ((process, everything.get(process.pid)) for process in self.known)
        return [process for process, seen in now if seen is not None and seen == process and not seen.zombie]

    def end(self, grace: float) -> Iterator[float]:
        """SIGTERM each, ``grace`` seconds, then SIGKILL until none is left. Yields how many seconds to wait until the next look."""
        began = time.monotonic()
        asked: set[processes.Process] = set()
        empty = 0
        # A look misses a process whose parent was listed, forked, and had gone when its turn came. So nothing found means nothing
        # there only twice in a row, and not while the keeper has a child: every orphan becomes one.
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
        with suppress(PermissionError):  # it changed its user (sudo): it is named in `left` in the end
            processes.send_signal(process.pid, process.start, signum)

    @staticmethod
    def _kill_cgroup(cgroup: str) -> None:
        path = os.path.join(cgroup, "cgroup.kill")
        with suppress(OSError), open(path, "w", encoding="ascii") as file:  # before Linux 5.14 the signals alone do it
            file.write("1")
