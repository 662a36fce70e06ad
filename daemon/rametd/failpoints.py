"""Failpoints: places where a test kills the daemon, to check that the next one finishes or undoes
the operation.

``RAMET_FAILPOINT=NAME`` selects one; `__main__` reads it. Without it, `Failpoint.hit` does nothing.
"""

import os
import signal
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Failpoint:
    """The selected failpoint; "" for none."""

    name: str = ""

    def hit(self, name: str) -> None:
        """Die by SIGKILL if ``name`` is selected: no handler runs, no buffer is flushed, no
        transaction commits."""
        if name == self.name:
            os.kill(os.getpid(), signal.SIGKILL)
