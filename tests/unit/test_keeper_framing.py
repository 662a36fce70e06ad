"""Frames and lines are the same for any chunks of bytes."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rametd.keeper import framing

frames = st.lists(st.tuples(st.integers(0, 255), st.binary(max_size=200)), max_size=12)


def chunks(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[start:end] for start, end in pairwise(edges)]


@given(frames, st.lists(st.integers(0, 5000), max_size=20))
def test_any_chunking_yields_the_same_frames(sent: list[tuple[int, bytes]], cuts: list[int]) -> None:
    stream = b"".join(framing.encode(kind, payload) for kind, payload in sent)
    decoder = framing.Decoder()

    received = [frame for chunk in chunks(stream, cuts) for frame in decoder.feed(chunk)]

    assert received == sent


@given(
    st.binary(max_size=300).map(lambda data: data.replace(b"a", b"\n")),
    st.lists(st.integers(0, 400), max_size=20),
    st.integers(0, 2**40),
)
def test_any_chunking_yields_the_same_lines_at_the_same_offsets(data: bytes, cuts: list[int], offset: int) -> None:
    lines = framing.Lines(offset)

    received = [line for chunk in chunks(data, cuts) for line in lines.feed(chunk)]

    assert [line for _, _, line in received] == data[: data.rfind(b"\n") + 1].splitlines(keepends=True) or b"\r" in data
    assert b"".join(line for _, _, line in received) + lines.rest == data
    position = offset
    for start, end, line in received:
        assert (start, end) == (position, position + len(line))
        assert line.endswith(b"\n")
        assert line.count(b"\n") == 1
        position = end
    assert (lines.start, lines.end) == (position, offset + len(data))


@given(st.lists(st.integers(0, 60), max_size=6), st.lists(st.integers(0, 400), max_size=20))
def test_only_the_beginning_of_a_long_line_is_stored(sizes: list[int], cuts: list[int]) -> None:
    data = b"".join(bytes([97 + number]) * size + b"\n" for number, size in enumerate(sizes)) + b"z" * 60
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(framing, "LONGEST", 20)
        patched.setattr(framing, "SHOWN", 5)
        lines = framing.Lines(7)
        received = [line for chunk in chunks(data, cuts) for line in lines.feed(chunk)]
        assert lines.rest == b"zzzzz"

    ends = [7 + sum(size + 1 for size in sizes[: number + 1]) for number in range(len(sizes))]
    assert [end for _, end, _ in received] == ends
    assert [start for start, _, _ in received] == [7, *ends][: len(sizes)]
    assert [len(line) for _, _, line in received] == [6 if size > 19 else size + 1 for size in sizes]
    assert all(line.endswith(b"\n") for _, _, line in received)


def test_an_oversized_frame_is_refused_before_it_is_received() -> None:
    header = framing.HEADER.pack(framing.MAX_PAYLOAD + 1, framing.STDIN)

    with pytest.raises(framing.FramingError, match="bytes"):
        list(framing.Decoder().feed(header))


@pytest.mark.parametrize("payload", [b"", b"[]", b"7", b"{", b"\xff"])
def test_a_payload_that_is_no_object_is_refused(payload: bytes) -> None:
    with pytest.raises(framing.FramingError):
        framing.decode_json(payload)


def test_a_number_that_is_too_short_is_refused() -> None:
    with pytest.raises(framing.FramingError):
        framing.decode_u64(b"1234567")
