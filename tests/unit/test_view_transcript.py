"""The events of one session in a view: in order, once each, and never more than the limit."""

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
    """Stored and live events may overlap, since they are read at the same time."""
    events = [warning(seq) for seq in range(1, total + 1)]
    begin = min(early, total)
    held = Transcript()
    for event in events[:begin]:
        held.add(event)
    held.load(events[: min(stored, total)], more=False)
    for event in events[begin:]:
        held.add(event)
    assert [event.seq for event in held.take()] == list(range(1, total + 1))


def test_the_oldest_events_that_no_painter_takes_are_dropped_beyond_a_number() -> None:
    held = Transcript()
    held.load([], more=False)
    for seq in range(1, transcript.MAX_EVENTS + 11):
        held.add(event_pb2.Event(seq=seq, partial=event_pb2.Partial(text="Let me ")))
    taken = held.take()
    assert (len(taken), taken[0].seq, held.dropped) == (transcript.MAX_EVENTS, 11, True)


def test_the_oldest_events_are_dropped_beyond_a_number_of_bytes_but_never_the_newest() -> None:
    held = Transcript()
    held.load([], more=False)
    for seq in range(1, 8):
        held.add(warning(seq, "x" * (transcript.MAX_BYTES // 3)))
    assert [event.seq for event in held.take()] == [6, 7]
    held.add(warning(8, "x" * 2 * transcript.MAX_BYTES))
    assert [event.seq for event in held.take()] == [8]


def test_a_transcript_stores_no_event_that_was_taken() -> None:
    held = Transcript()
    held.load([], more=False)
    for seq in range(1, 3 * transcript.MAX_EVENTS):
        held.add(warning(seq))
        assert [event.seq for event in held.take()] == [seq]
    assert not held.dropped


def test_each_event_is_taken_once_with_the_pieces_of_unfinished_messages() -> None:
    held = Transcript()
    held.add(warning(1))
    assert held.take() == []
    held.load([], more=False)
    held.add(event_pb2.Event(seq=2, partial=event_pb2.Partial(text="Let me ")))
    assert [event.seq for event in held.take()] == [1, 2]
    held.add(warning(3))
    assert [event.seq for event in held.take()] == [3]


def test_an_unbounded_transcript_drops_nothing_whatever_its_size() -> None:
    held = Transcript(bounded=False)
    held.load([], more=True)
    for seq in range(1, transcript.MAX_EVENTS + 11):
        held.add(warning(seq, "x" * transcript.MAX_BYTES if seq < 3 else ""))
    assert len(held.take()) == transcript.MAX_EVENTS + 10


def test_a_text_of_any_size_is_shown_with_its_beginning_and_a_note_of_what_is_cut() -> None:
    """A reply over the limit of bytes must survive the end of its turn."""
    text = "BEGIN" + "x" * 2 * transcript.MAX_BYTES
    block = event_pb2.ContentBlock(text=text)
    reply = event_pb2.Event(seq=1, assistant_message=event_pb2.AssistantMessage(blocks=[block, block]))
    ended = event_pb2.Event(seq=2, turn_ended=event_pb2.TurnEnded(text=text))
    held = Transcript()
    held.load([reply], more=False)
    held.add(ended)
    held.add(warning(3))
    taken = held.take()
    assert [event.seq for event in taken] == [1, 2, 3]
    assert not held.dropped
    for shown in (taken[0].assistant_message.blocks[1].text, taken[1].turn_ended.text):
        assert shown.startswith("BEGIN")
        assert shown.endswith("more characters: rametctl logs")
        assert len(shown) < transcript.LONGEST_TEXT + 100
