"""The events of one session in a view: in order, once each, and never more than there is room for."""

from hypothesis import given
from hypothesis import strategies as st
from ramet.v1 import event_pb2
from rametctl.view import transcript
from rametctl.view.transcript import Transcript


def warning(seq: int, text: str = "") -> event_pb2.Event:
    return event_pb2.Event(seq=seq, warning=event_pb2.Warning(message=text or str(seq)))


@given(stored=st.integers(0, 20), early=st.integers(0, 20), total=st.integers(0, 20))
def test_each_event_is_there_once_and_in_order_whenever_the_stored_ones_arrive(
    stored: int, early: int, total: int
) -> None:
    """The stored events may reach into the live ones, since they are read while those arrive."""
    events = [warning(seq) for seq in range(1, total + 1)]
    begin = min(early, total)
    held = Transcript()
    for event in events[:begin]:
        held.add(event)
    held.load(events[: min(stored, total)], more=False)
    for event in events[begin:]:
        held.add(event)
    assert [event.seq for event in held.events] == list(range(1, total + 1))


def test_the_oldest_events_are_dropped_beyond_a_number_of_events() -> None:
    held = Transcript()
    held.load([], more=False)
    for seq in range(1, transcript.MAX_EVENTS + 11):
        held.add(warning(seq))
    assert len(held.events) == transcript.MAX_EVENTS
    assert (held.events[0].seq, held.first_index, held.dropped) == (11, 10, True)


def test_the_oldest_events_are_dropped_beyond_a_number_of_bytes_but_never_the_newest() -> None:
    held = Transcript()
    held.load([], more=False)
    for seq in range(1, 8):
        held.add(warning(seq, "x" * (transcript.MAX_BYTES // 3)))
    assert [event.seq for event in held.events] == [6, 7]
    held.add(warning(8, "x" * 2 * transcript.MAX_BYTES))
    assert [event.seq for event in held.events] == [8]


def test_each_event_is_taken_once_with_the_pieces_of_unfinished_messages() -> None:
    held = Transcript()
    held.add(warning(1))
    assert held.take() == []
    held.load([], more=False)
    held.add(event_pb2.Event(seq=2, partial=event_pb2.Partial(text="Let me ")))
    assert [event.seq for event in held.take()] == [1, 2]
    held.add(warning(3))
    assert [event.seq for event in held.take()] == [3]
    assert [event.seq for event in held.events] == [1, 3]
