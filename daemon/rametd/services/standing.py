"""The checkpoint at which a session stands, and those that it came by."""

from ramet.v1 import event_pb2

from rametd.domain.checkpoints import Checkpoint, line_of
from rametd.store import Reader

FOLLOWED = 10_000
"""Events from which the line is made: beyond so many checkpoints and rewinds, the oldest seem to follow one on the other."""


def standing(reader: Reader, session_id: str) -> Checkpoint | None:
    """The one that a session goes on from: its newest, or the one that a rewind led to since. None before the first."""
    latest = reader.checkpoints.latest(session_id)
    return (reader.checkpoints.by_number(session_id, line_to(reader, latest)[0]) or latest) if latest else None


def line_to(reader: Reader, latest: Checkpoint) -> list[int]:
    """The numbers of the checkpoints, newest first, that a session whose newest is ``latest`` goes on from."""
    return line_of(latest.number, _rewinds(reader, latest.session_id))


def _rewinds(reader: Reader, session_id: str) -> list[tuple[int, int]]:
    """From which checkpoint each rewind led to which, oldest first.

    That is the last one made before it was done: a rewind that was killed, or that somebody wrote into, keeps what it finds again and again, and
    only the first of these is the one that undoes it.
    """
    rewinds, last = list[tuple[int, int]](), 0
    kinds = ("checkpoint_made", "session_rewound")
    for event in reader.events.list(session_id=session_id, kinds=kinds, limit=FOLLOWED, newest=True):
        told = event_pb2.Event.FromString(event.payload)
        if event.kind == "checkpoint_made":
            last = told.checkpoint_made.checkpoint.number
        else:
            last = max(last, told.session_rewound.before.number)
            rewinds.append((last, told.session_rewound.checkpoint.number))
    return rewinds
