"""When to look again: a live view is drawn when something has happened to a session, not by the clock alone."""

import queue
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rametctl.errors import ClientError

if TYPE_CHECKING:
    from rametctl.connection import Connection

QUIET = frozenset({"partial", "control_line", "agent_notice", "assistant_message", "user_message"})
"""Events that change nothing in a list of sessions."""


class Ticker:
    """Reads the event log in a thread and turns it into ticks, one in ``every`` seconds at most.

    ``connection`` is used by that thread alone, which goes on to the end of the process.
    """

    def __init__(self, connection: "Connection", *, every: float) -> None:
        self._connection = connection
        self._every = every
        self._events: queue.SimpleQueue[ClientError | None] = queue.SimpleQueue()
        threading.Thread(target=self._read, name="events", daemon=True).start()

    def ticks(self, *, idle: float | None) -> Iterator[None]:
        """One at once, then one for each burst of events, and one after ``idle`` seconds without any."""
        while True:
            yield
            time.sleep(self._every)
            self._take(idle)
            while not self._events.empty():
                self._take(0)

    def _take(self, timeout: float | None) -> None:
        try:
            item = self._events.get(timeout=timeout)
        except queue.Empty:
            return
        if item is not None:
            raise item

    def _read(self) -> None:
        from rametctl.follow import follow

        try:
            for item in follow(self._connection, snapshot=True):
                if item.WhichOneof("item") != "event" or item.event.WhichOneof("payload") not in QUIET:
                    self._events.put(None)
        except ClientError as error:
            self._events.put(error)
