"""The wire between a keeper and its controller: frames, and the lines inside them. Standard library
only; both ends use it.

A frame is ``u32 big-endian payload length, u8 type, payload``. Offsets and sequences are ``u64``
big-endian. One stream each way:

    keeper → controller                                     controller → keeper
    HELLO     JSON, first: versions, identity, offsets       ATTACH         JSON: epoch, offset
    ATTACHED  JSON: the attach is accepted                   STDIN          u64 sequence, whole lines
    REFUSED   JSON: reason; the connection ends              SIGNAL         JSON: id, signal name, epoch?
    DATA      u64 offset, journal bytes                      END            JSON: id, grace in seconds per step, epoch?
    WRITTEN   u64 sequence, u64 end of the stdin journal     CONSUMED       u64: send no further than a window beyond
    DONE      JSON: id of the request                        RELEASE        u64: the journal below is no longer needed
    STATUS    JSON: id, see `server.Keeper`                  RELEASE_STDIN  u64: likewise
    EXIT      JSON: the exit record, after all DATA          QUERY          JSON: id
    ERROR     JSON: reason, message, id or sequence?

DATA may be split anywhere, but the keeper sends no part of a line before the complete line is in
the journal. It sends only as much DATA as CONSUMED allows, so that a slow consumer delays neither
the keeper nor the answers to its own requests.
"""

from __future__ import annotations

import json
import struct

TYPE_CHECKING = False  # the `typing` module would cost a keeper half a megabyte
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

PROTOCOL_VERSION = 1
MAX_PAYLOAD = 64 << 20
"""Maximum bytes of one frame; a longer one means a broken peer."""
LONGEST, SHOWN = MAX_PAYLOAD, 4096
"""Maximum bytes of a journal line, which may span frames. Of a longer one the daemon gets only the
first ``SHOWN`` bytes."""
WINDOW = 1 << 20
"""Bytes of DATA that the keeper may send beyond what the controller has CONSUMED."""

HELLO, ATTACH, ATTACHED, REFUSED, DATA, STDIN, WRITTEN, SIGNAL, END = range(1, 10)
CONSUMED, RELEASE, RELEASE_STDIN, QUERY, STATUS, DONE, EXIT, ERROR = range(10, 18)

HEADER = struct.Struct(">IB")
U64 = struct.Struct(">Q")
U64_PAIR = struct.Struct(">QQ")


class FramingError(ValueError):
    """Raised for bytes that are no frame of this protocol. The connection is then unusable."""


def encode(kind: int, payload: bytes = b"") -> bytes:
    return HEADER.pack(len(payload), kind) + payload


def encode_json(kind: int, **fields: object) -> bytes:
    return encode(kind, json.dumps(fields).encode())


def decode_json(payload: bytes) -> dict[str, Any]:
    """Return the JSON object in ``payload``. Raise `FramingError` for anything else."""
    try:
        value = json.loads(payload)
    except ValueError as error:
        raise FramingError(f"not JSON: {error}") from None
    if not isinstance(value, dict):
        raise FramingError("not a JSON object")
    return value


def decode_u64(payload: bytes) -> int:
    """Return the number at the beginning of ``payload``. Raise `FramingError` if it is too
    short."""
    if len(payload) < U64.size:
        raise FramingError("no room for a number")
    return int.from_bytes(payload[: U64.size], "big")


class Decoder:
    """Cuts a byte stream, however chunked, into frames."""

    __slots__ = ("_buffer",)

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Yield each ``(type, payload)`` that ``data`` completes. Raise `FramingError` for an
        oversized one.

        Consume all of them before the next call.
        """
        buffer = self._buffer
        if buffer:
            buffer += data
            (length, _) = HEADER.unpack_from(buffer) if len(buffer) >= HEADER.size else (0, 0)
            if length <= MAX_PAYLOAD and len(buffer) < HEADER.size + length:
                return
            data = bytes(buffer)
            buffer.clear()
        begin = 0
        while len(data) - begin >= HEADER.size:
            length, kind = HEADER.unpack_from(data, begin)
            if length > MAX_PAYLOAD:
                raise FramingError(f"a frame of {length} bytes")
            end = begin + HEADER.size + length
            if len(data) < end:
                break
            yield kind, data[begin + HEADER.size : end]
            begin = end
        buffer += data[begin:]


class Lines:
    """Cuts a byte stream, however chunked, into ``(start, end, line with its newline)`` with stream
    offsets."""

    __slots__ = ("_cut", "_parts", "end", "start")

    def __init__(self, offset: int) -> None:
        self.start = offset
        """Offset at which the first incomplete line begins."""
        self.end = offset
        """Offset of the end of the received stream."""
        self._parts: list[bytes] = []
        self._cut = False
        """Whether the incomplete line is too long: only its beginning is in memory."""

    def feed(self, data: bytes) -> Iterator[tuple[int, int, bytes]]:
        """Yield the lines that ``data`` completes. Consume all of them before the next call."""
        at = self.end
        self.end += len(data)
        begin = 0
        while (newline := data.find(b"\n", begin)) >= 0:
            self._append(data[begin : newline + 1], at + newline + 1)
            line = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
            if self._cut:
                line += b"\n"
                self._cut = False
            self._parts.clear()
            begin = newline + 1
            start, self.start = self.start, at + begin
            yield start, self.start, line
        if begin < len(data):
            self._append(data[begin:], self.end)

    def _append(self, part: bytes, end: int) -> None:
        if not self._cut:
            self._parts.append(part)
            if end - self.start > LONGEST:
                self._parts, self._cut = [b"".join(self._parts)[:SHOWN]], True

    @property
    def rest(self) -> bytes:
        """Return the bytes after the last newline."""
        return b"".join(self._parts)
