"""Loading modules faster: a fifth of the time that a daemon takes until it serves."""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import cast

COLLECT = (20_000, 20, 20)
"""When garbage is looked for. A line of an agent makes a hundred objects that are gone with it: by Python's own limits, a twelfth of a busy daemon's
time goes into looking at what lives."""


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
