"""The event log in a thread, so that a live view can also watch the clock."""

import math
import queue
import threading
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rametctl.errors import ClientError

if TYPE_CHECKING:
    from ramet.v1.common_pb2 import Cursor

    from rametctl.connection import Connection
    from rametctl.follow import Step

AHEAD = 1000
"""Most steps to read ahead; beyond them the daemon waits."""
QUIET = frozenset({"partial", "control_line", "agent_notice", "assistant_message", "user_message"})
"""Events that change nothing in a list of sessions."""


class Feed:
    """Follows the log from ``after``, or from a ``snapshot``, over restarts of the daemon.

    Only the feed's thread uses ``connection``; the thread runs to the end of the process.
    """

    def __init__(
        self,
        connection: "Connection",
        *,
        sessions: Sequence[str] = (),
        after: "Cursor | None" = None,
        snapshot: bool = False,
    ) -> None:
        self._connection = connection
        self._sessions = sessions
        self._after = after
        self._snapshot = snapshot
        self._steps: queue.Queue[Step | ClientError] = queue.Queue(AHEAD)
        threading.Thread(target=self._read, name="feed", daemon=True).start()

    def take(self, timeout: float | None) -> "list[Step]":
        """Return the available steps; wait at most ``timeout`` seconds for the first one. Raise what `follow` raises."""
        steps: list[Step] = []
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

    def ticks(self, *, every: float, idle: float | None) -> Iterator[None]:
        """Yield at once, then after each burst of events that change a list of sessions, or ``idle`` seconds without any.

        Two ticks are at least ``every`` seconds apart.
        """
        while True:
            yield
            time.sleep(every)
            end = math.inf if idle is None else time.monotonic() + idle
            while (left := end - time.monotonic()) > 0:
                if any(map(_changes_list, self.take(None if idle is None else left))):
                    break

    def _read(self) -> None:
        from rametctl.follow import follow

        try:
            for step in follow(self._connection, sessions=self._sessions, after=self._after, snapshot=self._snapshot):
                self._steps.put(step)
        except ClientError as error:
            self._steps.put(error)


def _changes_list(step: "Step") -> bool:
    return step.event is None or step.event.WhichOneof("payload") not in QUIET
