"""The events of one session on their way to a painter: the newest stored ones, then live ones."""

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

from google.protobuf.message import Message

if TYPE_CHECKING:
    from ramet.v1.event_pb2 import Event

MAX_EVENTS = 2000
MAX_BYTES = 4 << 20
LONGEST_TEXT = 128 << 10
"""Characters of one text that a bounded transcript contains; a painter would freeze over a longer
one."""
PAGE = 500
"""Stored events that a transcript begins with."""


class Transcript:
    """Events in order, each exactly once. A painter takes them, and stores what it shows.

    Until `load`, live events wait for the stored ones. Of the events that no painter takes, the
    oldest beyond `MAX_EVENTS` or `MAX_BYTES` are dropped if ``bounded``, and texts are cut at
    `LONGEST_TEXT`. ``dropped`` is then true, as it is if the stored log begins before the loaded
    events.
    """

    def __init__(self, *, bounded: bool = True) -> None:
        self._bounded = bounded
        self.loaded = False
        self.dropped = False
        self.fresh: deque[Event] = deque()
        """Events that no painter has taken."""
        self._last_seq = 0
        self._bytes = 0
        self._waiting: list[Event] = []

    def load(self, events: Iterable["Event"], *, more: bool) -> None:
        """Begin with stored events; ``more``: there are earlier ones."""
        self.loaded = True
        self.dropped = more
        waiting, self._waiting = self._waiting, []
        for event in (*events, *waiting):
            self._append(event)

    def add(self, event: "Event") -> None:
        """Add a live event; ignore one that `load` added."""
        if self.loaded:
            self._append(event)
        else:
            self._waiting.append(event)

    def take(self) -> list["Event"]:
        """Return the events since the last call, pieces of unfinished messages too."""
        fresh = list(self.fresh)
        self.fresh.clear()
        self._bytes = 0
        return fresh

    def _append(self, event: "Event") -> None:
        if event.seq <= self._last_seq:
            return
        self._last_seq = event.seq
        if self._bounded and event.ByteSize() > LONGEST_TEXT:
            _cut(event)
        self.fresh.append(event)
        self._bytes += event.ByteSize()
        while self._bounded and (len(self.fresh) > MAX_EVENTS or (self._bytes > MAX_BYTES and len(self.fresh) > 1)):
            self._bytes -= self.fresh.popleft().ByteSize()
            self.dropped = True


def _cut(message: Message) -> None:
    """Cut each text of a message, and say so in its place."""
    for field, value in message.ListFields():
        if field.name in {"text", "thinking"} and len(value) > LONGEST_TEXT:
            more = len(value) - LONGEST_TEXT
            setattr(message, field.name, f"{value[:LONGEST_TEXT]}\n\n… {more:,} more characters: rametctl logs")
        elif field.message_type is not None:
            for each in (value,) if isinstance(value, Message) else value:
                if isinstance(each, Message):
                    _cut(each)
