"""Instants at which a test has the daemon killed, to see that the next one finishes or undoes what was under way.

``RAMET_FAILPOINT=NAME`` names one; `__main__` reads it and hands it down. Unset, as always but in tests, `Failpoint.hit` does nothing.
"""

import os
import signal
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Failpoint:
    """The one instant that is chosen; "" for none."""

    name: str = ""

    def hit(self, name: str) -> None:
        """Die by SIGKILL if this is the instant: no handler runs, no buffer is flushed, no transaction ends."""
        if name == self.name:
            os.kill(os.getpid(), signal.SIGKILL)
