"""A limit for the end of the daemon. Its last steps wait for threads, which cannot be cancelled:
one that reads a network drive or deletes a large tree may take minutes."""

import os
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType

import structlog

log = structlog.get_logger()

WARN_S = 3.0
"""Seconds after which the log names the threads that the daemon waits for."""
LIMIT_S = 20.0
"""Seconds after which the process ends, as if it were killed: the next daemon finishes or undoes
the work."""
WORKERS = ("git", "asyncio")
"""First words of the names of threads that do one piece of work after another."""


def limit(warn_s: float = WARN_S, limit_s: float = LIMIT_S, end: Callable[[], None] = lambda: os._exit(0)) -> None:
    """Begin to count; call ``end`` in a thread after ``limit_s`` seconds. The thread does not keep
    the process alive."""

    def count() -> None:
        time.sleep(warn_s)
        log.warning("the daemon stops once these threads end", threads=busy(), limit_s=limit_s)
        time.sleep(limit_s - warn_s)
        log.error("the daemon ends without these threads; the next one finishes or undoes their work", threads=busy())
        time.sleep(0.1)  # another thread writes the log
        end()

    threading.Thread(target=count, name="shutdown", daemon=True).start()


def busy() -> list[str]:
    """Threads at work, each with the function of Ramet that it runs."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    found = []
    for identity, frame in sys._current_frames().items():
        name = names.get(identity, "")
        if name.startswith(WORKERS) and (function := _function(frame)):
            found.append(f"{name}: {function}")
    return sorted(found)


def _function(frame: FrameType | None) -> str:
    """The function that a thread runs or waits in; "" if it waits for work."""
    while frame is not None:
        if not frame.f_globals.get("__name__", "").startswith(("concurrent.", "threading", "queue")):
            return f"{frame.f_globals.get('__name__', '')}.{frame.f_code.co_name}"
        frame = frame.f_back
    return ""
