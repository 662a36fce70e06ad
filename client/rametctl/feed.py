"""The event log in a thread, so that whoever draws can also look at the clock."""

import queue
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rametctl.errors import ClientError

if TYPE_CHECKING:
    from ramet.v1.common_pb2 import Cursor
    from ramet.v1.event_pb2 import WatchEventsResponse

    from rametctl.connection import Connection

AHEAD = 1000
"""Steps that are read before they are taken; beyond them the daemon waits."""


class Feed:
    """Follows the log from ``after``, over restarts of the daemon. ``connection`` is used by the feed's thread alone, which
    goes on to the end of the process."""

    def __init__(
        self, connection: "Connection", *, sessions: Sequence[str] = (), after: "Cursor | None" = None
    ) -> None:
        self._connection = connection
        self._sessions = sessions
        self._after = after
        self._steps: queue.Queue[WatchEventsResponse | ClientError] = queue.Queue(AHEAD)
        threading.Thread(target=self._read, name="feed", daemon=True).start()

    def take(self, timeout: float | None) -> "list[WatchEventsResponse]":
        """Return the steps that are there; wait for the first one at most ``timeout`` seconds. Raises what `follow` raises."""
        steps: list[WatchEventsResponse] = []
        try:
            step = self._steps.get(timeout=timeout)
            while True:
                if isinstance(step, ClientError):
                    if steps:
                        self._steps.put(step)
                        break
                    raise step
                steps.append(step)
                step = self._steps.get_nowait()
        except queue.Empty:
            pass
        return steps

    def _read(self) -> None:
        from rametctl.follow import follow

        try:
            for step in follow(self._connection, sessions=self._sessions, after=self._after):
                self._steps.put(step)
        except ClientError as error:
            self._steps.put(error)
