"""Loading modules faster: a fifth of the time that a daemon takes until it serves."""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import cast

COLLECT = (2_000, 10, 10)
"""The collector's thresholds. Starting a session leaves a third of a megabyte of cyclic garbage: with (20,000, 20, 20) it stayed, and a live session took
0.69 MB of the daemon instead of 0.32. What the imports made is frozen, so that the processor time per event of an agent is the same with both."""


@contextmanager
def quickly() -> Iterator[None]:
    """Import inside.

    No garbage is collected meanwhile: modules make much and free little. What is alive afterwards is taken out of the collector's sight,
    as it stays for good; a collection of all would stop the loop for 60 ms each time once the SDK is loaded.

    Rich is hidden: structlog loads it, if it can be, for a way of showing exceptions that `logs` never uses.
    """
    hidden = "rich" not in sys.modules
    if hidden:
        sys.modules["rich"] = cast("ModuleType", None)  # which makes its import fail
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.freeze()
        gc.set_threshold(*COLLECT)
        if hidden:
            del sys.modules["rich"]
