"""Blocking calls on the event loop, made to fail: for daemons that run inside a test's own loop."""

from collections.abc import Iterator
from contextlib import contextmanager

import rametd
from blockbuster import BlockBuster, blockbuster_ctx


@contextmanager
def no_blocking_calls() -> Iterator[BlockBuster]:
    """Any call of the daemon's code that blocks the loop raises `BlockingError`: files, locks, sleeps, sockets, subprocesses.

    To be entered once the daemon serves: before that there is nobody who could wait.
    """
    with blockbuster_ctx(rametd) as guard:
        yield guard
