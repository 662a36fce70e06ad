"""The keeper's end of one connection: frames in, frames out, and the window of the journal.
Standard library only."""

from __future__ import annotations

import selectors
import socket
from collections import deque

from rametd.keeper import directory, framing, segments

CHUNK = 64 << 10
OUTPUT_LIMIT = 256 << 10
"""Bytes buffered for a slow peer before the keeper stops encoding more."""


class Peer:
    """A controller, or a connection that only queries.

    ``cursor``: journal offset up to which DATA was encoded for it; ``consumed``: offset that it has
    consumed; ``watched``: events that its connection is registered for, 0 for none.
    """

    __slots__ = (
        "_decoder",
        "_journal",
        "_output",
        "_reader",
        "closing",
        "connection",
        "consumed",
        "cursor",
        "frames",
        "told_exit",
        "watched",
    )

    def __init__(self, connection: socket.socket, path: str, journal: segments.Writer) -> None:
        connection.setblocking(False)
        self.connection = connection
        self.frames: deque[tuple[int, bytes]] = deque()
        self.cursor = self.consumed = 0
        self.closing = self.told_exit = False
        self.watched = 0
        self._decoder = framing.Decoder()
        self._output = bytearray()
        self._journal = journal
        self._reader = segments.Reader(path, directory.JOURNAL, journal.starts)

    def receive(self) -> bool:
        """Read the available bytes; return False if the peer is gone."""
        try:
            data = self.connection.recv(CHUNK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        try:
            self.frames.extend(self._decoder.feed(data))
        except framing.FramingError as error:
            self.send(framing.ERROR, reason="MALFORMED", message=str(error))
            self.closing = True
        return bool(data)

    def send(self, kind: int, **fields: object) -> None:
        self._output += framing.encode_json(kind, **fields)

    def send_raw(self, kind: int, payload: bytes) -> None:
        self._output += framing.encode(kind, payload)

    def refuse(self, reason: str, message: str, **fields: object) -> None:
        """Send the reason, and end the connection."""
        self.send(framing.REFUSED, reason=reason, message=message, **fields)
        self.closing = True

    def feed(self) -> None:
        """Encode complete lines as DATA while the peer has room."""
        limit = min(self._journal.line_end, self.consumed + framing.WINDOW)
        while self.cursor < limit and len(self._output) < OUTPUT_LIMIT:
            data = self._reader.read(self.cursor, min(CHUNK, limit - self.cursor))
            if not data:
                raise OSError(f"the journal has no byte {self.cursor}")
            self.send_raw(framing.DATA, framing.U64.pack(self.cursor) + data)
            self.cursor += len(data)

    def flush(self) -> bool:
        """Send as much as the socket takes; return False if the peer is gone."""
        try:
            while self._output:
                sent = self.connection.send(memoryview(self._output)[:CHUNK])
                del self._output[:sent]
        except BlockingIOError:
            return True
        except OSError:
            return False
        return True

    @property
    def wanted_events(self) -> int:
        """Return the events to wait for: reading while its answers are being taken, writing while
        data waits."""
        events = selectors.EVENT_WRITE if self._output else 0
        if not self.frames and len(self._output) < OUTPUT_LIMIT:
            events |= selectors.EVENT_READ
        return events

    @property
    def is_done(self) -> bool:
        """Return whether it has received everything, including EXIT."""
        return self.told_exit and not self._output

    def close(self) -> None:
        self._reader.close()
        self.connection.close()
