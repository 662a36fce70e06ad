"""Import modules faster: saves a fifth of the daemon's start time."""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import cast

COLLECT = (2_000, 10, 10)
"""Thresholds of the garbage collector. Starting a session leaves a third of a megabyte of cyclic garbage; with (20,000, 20, 20) it
stayed, and a live session took 0.69 MB of the daemon instead of 0.32. Objects from imports are frozen, so that the processor
time per event of an agent is the same with both."""


@contextmanager
def quickly() -> Iterator[None]:
    """Import modules within the block, without garbage collection: imports create many objects and free few.

    Afterwards the living objects, which stay for good, are hidden from the collector: with the SDK loaded, each full collection
    would stop the loop for 60 ms. Rich is hidden too: structlog imports it if present, to format exceptions in a way that `logs`
    never uses.
    """
    hidden = "rich" not in sys.modules
    if hidden:
        sys.modules["rich"] = cast("ModuleType", None)  # makes its import fail
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.freeze()
        gc.set_threshold(*COLLECT)
        if hidden:
            del sys.modules["rich"]
