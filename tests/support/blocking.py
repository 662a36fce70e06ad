"""Make blocking calls on the event loop fail, for daemons that run inside a test's own loop."""

from collections.abc import Iterator
from contextlib import contextmanager

import rametd
from blockbuster import BlockBuster, blockbuster_ctx


@contextmanager
def no_blocking_calls() -> Iterator[BlockBuster]:
    """Make any call of the daemon's code that blocks the loop raise `BlockingError`: files, locks,
    sleeps, sockets, subprocesses.

    Enter it once the daemon serves: before that no client waits.
    """
    with blockbuster_ctx(rametd) as guard:
        yield guard
