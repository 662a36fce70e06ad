"""The journal on disk: offsets stay valid over rotation and release, and lines stay complete."""

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rametd.keeper import directory, segments

line = st.binary(max_size=40).map(lambda data: data.replace(b"\n", b".") + b"\n")


def write(writer: segments.Writer, data: bytes) -> None:
    while data:
        data = data[writer.append(data) :]


def read(path: str, offset: int) -> bytes:
    reader = segments.Reader(path, "journal", segments.scan(path, "journal"))
    found = b""
    while data := reader.read(offset + len(found), 7):
        found += data
    reader.close()
    return found


@given(st.lists(line, max_size=30), st.integers(1, 60), st.integers(1, 50))
def test_every_offset_reads_the_same_bytes_over_any_rotation(lines: list[bytes], limit: int, chunk: int) -> None:
    data = b"".join(lines)
    with TemporaryDirectory() as path:
        writer = segments.Writer(path, "journal", limit)
        for start in range(0, len(data), chunk):
            write(writer, data[start : start + chunk])

        assert (writer.end, writer.line_end) == (len(data), len(data))
        for offset in range(0, len(data) + 1, 5):
            assert read(path, offset) == data[offset:]
        for start in segments.scan(path, "journal")[1:]:
            assert data[start - 1 : start] == b"\n"


def test_release_deletes_only_complete_segments_below_the_offset(tmp_path: Path) -> None:
    writer = segments.Writer(str(tmp_path), "journal", 10)
    for _ in range(4):
        write(writer, b"0123456789\n")
    assert segments.scan(str(tmp_path), "journal") == [0, 11, 22, 33]

    writer.release(32)

    assert (segments.scan(str(tmp_path), "journal"), writer.first) == ([22, 33], 22)
    assert read(str(tmp_path), 22) == b"0123456789\n" * 2
    with pytest.raises(LookupError):
        read(str(tmp_path), 21)
    writer.release(1000)
    assert segments.scan(str(tmp_path), "journal") == [33]


def test_a_line_longer_than_a_segment_stays_in_one(tmp_path: Path) -> None:
    writer = segments.Writer(str(tmp_path), "journal", 10)

    write(writer, b"x" * 25)
    write(writer, b"y" * 25 + b"\nnext\n")

    assert segments.scan(str(tmp_path), "journal") == [0, 51]
    assert (writer.end, writer.line_end) == (56, 56)


def test_files_of_other_names_are_no_segments(tmp_path: Path) -> None:
    for name in ("journal.1", "journal.0000000000000000000x", "stdin.00000000000000000000", "journal"):
        (tmp_path / name).touch()

    assert segments.scan(str(tmp_path), "journal") == []


def test_the_stderr_ring_keeps_the_end_within_its_limit(tmp_path: Path) -> None:
    ring = directory.StderrRing(str(tmp_path))
    for number in range(200):
        ring.append(b"%08d " % number * 1000)

    size = sum(path.stat().st_size for path in tmp_path.iterdir())

    assert directory.STDERR_LIMIT // 2 < size <= directory.STDERR_LIMIT
    assert directory.read_stderr_tail(str(tmp_path), 9) == b"00000199 "
    assert len(directory.read_stderr_tail(str(tmp_path), 200_000)) == min(size, 200_000)
    assert ring.dropped == 0


def test_a_record_replaces_the_one_before_and_survives_a_torn_write(tmp_path: Path) -> None:
    directory.write_record(str(tmp_path), "run.json", {"pid": 1})
    (tmp_path / ".run.json.new").write_bytes(b'{"pid": 2, "to')

    assert directory.read_record(str(tmp_path), "run.json") == {"pid": 1}
    directory.write_record(str(tmp_path), "run.json", {"pid": 3})
    assert directory.read_record(str(tmp_path), "run.json") == {"pid": 3}
    assert (tmp_path / "run.json").stat().st_mode & 0o777 == 0o600
    assert directory.read_record(str(tmp_path), "exit.json") is None


def test_the_environment_keeps_every_byte() -> None:
    variables = {"A": "x=y\n", "EMPTY": "", "BYTES": os.fsdecode(b"\xff\xfe")}

    assert directory.decode_environment(directory.encode_environment(variables)) == {
        b"A": b"x=y\n",
        b"EMPTY": b"",
        b"BYTES": b"\xff\xfe",
    }


def test_the_lock_has_one_holder_and_looking_does_not_take_it(tmp_path: Path) -> None:
    assert not directory.is_locked(str(tmp_path))
    lock = directory.acquire_lock(str(tmp_path))
    assert lock is not None

    assert directory.is_locked(str(tmp_path))
    assert directory.acquire_lock(str(tmp_path)) is None
    os.close(lock)
    assert not directory.is_locked(str(tmp_path))
