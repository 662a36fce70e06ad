"""A byte journal in segment files, each named by its start offset. Standard library only.

``journal.00000000000000000000`` has the first bytes. A segment that has reached its size ends at
the next line end, so that no line is split. Offsets count from 0 over all segments and never
change; released segments are deleted.
"""

from __future__ import annotations

import bisect
import os
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


def segment_path(directory: str, name: str, start: int) -> str:
    return os.path.join(directory, f"{name}.{start:020d}")


def scan(directory: str, name: str) -> list[int]:
    """Return the start offsets of the segments on the disk, ascending."""
    prefix = name + "."
    return sorted(
        int(entry[len(prefix) :])
        for entry in os.listdir(directory)
        if entry.startswith(prefix) and len(entry) == len(prefix) + 20 and entry[len(prefix) :].isdigit()
    )


def end(directory: str, name: str) -> int:
    """Return the end offset of the segments on the disk, 0 without any. The newest one is never
    released."""
    starts = scan(directory, name)
    return starts[-1] + os.stat(segment_path(directory, name, starts[-1])).st_size if starts else 0


class Writer:
    """The only writer of a new journal in ``directory``; it closes a segment at the first line end
    from ``limit`` bytes on.

    With ``keep`` the journal has only the last ``keep`` bytes and a segment, released or not, and
    may begin within a line.
    """

    __slots__ = ("_descriptor", "_directory", "_keep", "_limit", "_name", "end", "line_end", "starts")

    def __init__(self, directory: str, name: str, limit: int, keep: int = 0) -> None:
        self._directory, self._name, self._limit, self._keep = directory, name, limit, keep
        self.end = self.line_end = 0
        self.starts = [0]
        self._descriptor = self._create(0)

    def _create(self, start: int) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND
        return os.open(segment_path(self._directory, self._name, start), flags, 0o600)

    @property
    def first(self) -> int:
        """Lowest readable offset."""
        return self.starts[0]

    def append(self, data: bytes) -> int:
        """Write a first part of ``data`` and return its length, at least 1. Raise `OSError` if
        nothing was written."""
        if self.end - self.starts[-1] >= self._limit and (self._keep or self.end == self.line_end):
            self._rotate()
            if self._keep:
                self.release(self.end - self._keep)
        room = self._limit - (self.end - self.starts[-1])
        if len(data) > room and (newline := data.find(b"\n", max(0, room - 1))) >= 0:
            data = data[: newline + 1]
        written = os.write(self._descriptor, data)
        newline = data.rfind(b"\n", 0, written)
        if newline >= 0:
            self.line_end = self.end + newline + 1
        self.end += written
        return written

    def _rotate(self) -> None:
        descriptor = self._create(self.end)
        os.close(self._descriptor)
        self._descriptor = descriptor
        self.starts.append(self.end)

    def release(self, offset: int) -> None:
        """Delete the segments that end at or below ``offset``, except the one being written."""
        while len(self.starts) > 1 and self.starts[1] <= offset:
            with suppress(FileNotFoundError):
                os.unlink(segment_path(self._directory, self._name, self.starts[0]))
            del self.starts[0]

    def sync(self) -> None:
        """Sync the journal. Needed only at the end: a power cut while the agent runs ends the agent
        too."""
        for start in self.starts:
            descriptor = os.open(segment_path(self._directory, self._name, start), os.O_RDONLY)
            os.fsync(descriptor)
            os.close(descriptor)


class Reader:
    """Reads at offsets; leaves the last segment open. ``starts`` may be a writer's own list."""

    __slots__ = ("_descriptor", "_directory", "_name", "_start", "_starts")

    def __init__(self, directory: str, name: str, starts: Sequence[int]) -> None:
        self._directory, self._name, self._starts = directory, name, starts
        self._start = self._descriptor = -1

    def read(self, offset: int, size: int) -> bytes:
        """Return up to ``size`` bytes at ``offset`` from one segment; empty at the end. Raise
        `LookupError` for a released offset."""
        index = bisect.bisect_right(self._starts, offset) - 1
        if index < 0:
            raise LookupError(offset)
        start = self._starts[index]
        if start != self._start:
            self.close()
            self._descriptor = os.open(segment_path(self._directory, self._name, start), os.O_RDONLY)
            self._start = start
        return os.pread(self._descriptor, size, offset - start)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._start = self._descriptor = -1
