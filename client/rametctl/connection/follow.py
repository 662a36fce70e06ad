"""Follow streams over restarts of the daemon.

The event log continues from the last cursor; a stream that begins with a snapshot starts again.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from rametctl.errors import ClientError, ConnectionLostError, UsageError, is_transient

if TYPE_CHECKING:
    from ramet.v1.common_pb2 import Cursor
    from ramet.v1.event_pb2 import Event, WatchEventsRequest, WatchEventsResponse

    from rametctl.connection.channel import Cancellable, Connection, Method

Request = TypeVar("Request")
Response = TypeVar("Response")

GIVE_UP = 60.0
"""Seconds without a daemon after which following ends."""
RESTART_GRACE = 1.0
"""Seconds to wait for a stopped daemon to return before starting one, as an upgrade restarts it."""


class Step(NamedTuple):
    """One event of a watch, or another item: then ``event`` is None. The cursor is ``epoch`` and
    ``seq``."""

    event: "Event | None"
    item: "WatchEventsResponse"
    epoch: str
    seq: int

    @property
    def is_reset(self) -> bool:
        return self.item.HasField("reset")


def parse_cursor(text: str) -> "Cursor":
    """Parse ``EPOCH:SEQ``, as `--json` prints it. Raise UsageError."""
    from ramet.v1.common_pb2 import Cursor

    epoch, colon, seq = text.rpartition(":")
    if not colon or not epoch or not (seq.isascii() and seq.isdigit()) or len(seq) > 19:
        raise UsageError(f"{text!r} is not a cursor", hint='it is EPOCH:SEQ, the "cursor" that watch --json prints')
    return Cursor(epoch=epoch, seq=int(seq))


def follow(
    connection: "Connection",
    *,
    sessions: Sequence[str] = (),
    after: "Cursor | None" = None,
    include_frames: bool = False,
) -> Iterator[Step]:
    """Yield the steps of a watch without heartbeats, without gaps, and without end.

    ``after`` None: from now on. Yields a Reset too, followed by a Snapshot of the new log. Raises
    what `resumed` raises.
    """
    from ramet.v1 import event_pb2

    # "From now on" means the first attempt, even if the stream breaks early.
    cursor = connection.info().cursor if after is None else after
    snapshot = False

    def request() -> "WatchEventsRequest":
        return event_pb2.WatchEventsRequest(
            after=None if snapshot else cursor, sessions=sessions, include_frames=include_frames, snapshot=snapshot
        )

    for item in resumed(connection, lambda daemon: daemon.events.WatchEvents, request):
        kind = item.WhichOneof("item")
        if item.HasField("cursor"):
            cursor = item.cursor
        # The daemon ends the stream after a reset.
        snapshot = kind == "reset" or (snapshot and kind != "snapshot")
        epoch = item.cursor.epoch
        yield from (Step(event, item, epoch, event.seq) for event in item.events)
        if kind is not None and kind != "heartbeat":
            yield Step(None, item, epoch, item.cursor.seq)


def resumed(
    connection: "Connection",
    method: "Callable[[Connection], Method[Request, Cancellable[Response]]]",
    request: Callable[[], Request],
    tell: Callable[[str], None] = lambda words: None,
) -> Iterator[Response]:
    """Yield the answers of a stream without end; after a break it continues with what ``request``
    then returns.

    ``tell`` gets messages for the person when the daemon stops and when it is back. Raise
    UnreachableError after ``GIVE_UP`` seconds without a daemon, TimedOutError at the limit of
    `Connection.within`, and the daemon's errors.
    """
    failing_since: float | None = None
    pause = 0.1
    while True:
        try:
            for answer in connection.stream(method, request()):
                if failing_since is not None:
                    tell("connected again; the current state:")
                failing_since, pause = None, 0.1
                yield answer
            raise _ended()
        except ClientError as error:
            if not is_transient(error):
                raise
            if failing_since is None and isinstance(error, ConnectionLostError):
                tell("the daemon stopped; connecting again …")
            failing_since = _wait_for_daemon(connection, error, failing_since, pause)
            pause = min(pause * 2, 2.0)


def _ended() -> ConnectionLostError:
    """Return the error for a stream that the daemon ended, as during a shutdown."""
    return ConnectionLostError("the daemon ended the stream", hint="run: rametctl daemon status")


def _wait_for_daemon(connection: "Connection", error: ClientError, failing_since: float | None, pause: float) -> float:
    """Wait before the next attempt; return since when no daemon runs. Raise ``error`` after too
    long, TimedOutError at the limit of `Connection.within`."""
    if failing_since is None:
        if not isinstance(error, ConnectionLostError) and error.reason != "RECOVERING":
            raise error
        failing_since = time.monotonic()
        connection.close()
    end = time.monotonic() + (RESTART_GRACE if connection.autostart else pause)
    while time.monotonic() < end and not connection.running():
        connection.rest(min(pause, 0.1))
    if time.monotonic() - failing_since > GIVE_UP:
        raise error
    if connection.running():
        connection.rest(pause)
    return failing_since
