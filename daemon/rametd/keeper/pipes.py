"""The agent's three pipes and the journals behind them. Standard library only.

The keeper writes stdout to the disk at once. While the disk is full it does not read the pipe, so
the agent waits and nothing is lost. Input for stdin passes through a journal too, so that a slow
agent causes no queue in memory.
"""

from __future__ import annotations

import errno
import os
import selectors
import time

from rametd.keeper import directory, segments

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from rametd.keeper import child

CHUNK = 64 << 10
PIPE_CHUNKS = (1 << 20) // CHUNK
"""Bytes of the largest pipe (an unprivileged process may request 1 MiB)."""
RETRY = 0.25
"""Seconds between attempts to write to a full disk."""


class Pipes:
    """Registers the pipes with ``selector``, whose keys carry the handler to call."""

    def __init__(
        self,
        path: str,
        agent: child.Child,
        segment_bytes: int,
        selector: selectors.BaseSelector,
        *,
        keep_bytes: int = 0,
    ) -> None:
        self.journal = segments.Writer(path, directory.JOURNAL, segment_bytes, keep_bytes)
        self.stdin_journal = segments.Writer(path, directory.STDIN, segment_bytes)
        self.stderr = directory.StderrRing(path)
        self.fed = 0
        """Offset in the stdin journal up to which the agent's pipe has taken it."""
        self.stdin_open = self.stdout_open = self.stderr_open = True
        self.closing_stdin = False
        self.blocked: str | None = None
        """Name of the errno while writing to the disk fails."""
        self.retry_at: float | None = None
        self._agent = agent
        self._selector = selector
        self._stdin_reader = segments.Reader(path, directory.STDIN, self.stdin_journal.starts)
        self._unwritten = b""
        self._stdin_unwritten = b""
        self._when_journalled: Callable[[], None] | None = None
        selector.register(agent.stdout, selectors.EVENT_READ, self.read_stdout)
        selector.register(agent.stderr, selectors.EVENT_READ, self.read_stderr)

    @property
    def has_unwritten(self) -> bool:
        """Whether bytes read from stdout are not in the journal yet."""
        return bool(self._unwritten)

    @property
    def accepts_stdin(self) -> bool:
        """False while a line waits for room on the disk."""
        return not self._stdin_unwritten

    def read_stdout(self, _: int = 0) -> None:
        try:
            data = os.read(self._agent.stdout, CHUNK)
        except BlockingIOError:
            return
        if not data:
            self.stdout_open = False
            self._close(self._agent.stdout)
            return
        self._unwritten = self._append(self.journal, data)
        if self._unwritten:
            self._selector.unregister(self._agent.stdout)

    def read_stderr(self, _: int = 0) -> None:
        try:
            data = os.read(self._agent.stderr, CHUNK)
        except BlockingIOError:
            return
        if data:
            self.stderr.append(data)
        else:
            self.stderr_open = False
            self._close(self._agent.stderr)

    def write_stdin(self, data: bytes, when_journalled: Callable[[], None]) -> None:
        """Accept whole lines; only while `accepts_stdin`."""
        self._stdin_unwritten = self._append(self.stdin_journal, data)
        if self._stdin_unwritten:
            self._when_journalled = when_journalled
        else:
            when_journalled()

    def retry(self) -> None:
        """Repeat the failed write; call it at `retry_at`."""
        self.retry_at = self.blocked = None
        if self._unwritten:
            self._unwritten = self._append(self.journal, self._unwritten)
            if not self._unwritten:
                self._selector.register(self._agent.stdout, selectors.EVENT_READ, self.read_stdout)
        if self._stdin_unwritten:
            self._stdin_unwritten = self._append(self.stdin_journal, self._stdin_unwritten)
            if not self._stdin_unwritten and self._when_journalled is not None:
                self._when_journalled()
                self._when_journalled = None

    def feed_stdin(self, _: int = 0) -> None:
        """Write the stdin journal to the agent; with `closing_stdin` close the pipe after the last
        byte."""
        if not self.stdin_open:
            return
        pipe = self._agent.stdin
        waiting = pipe in self._selector.get_map()
        try:
            while self.fed < self.stdin_journal.end:
                self.fed += os.write(pipe, self._stdin_reader.read(self.fed, CHUNK))
        except BlockingIOError:
            if not waiting:
                self._selector.register(pipe, selectors.EVENT_WRITE, self.feed_stdin)
            return
        except BrokenPipeError:
            self.close_stdin()
            return
        if self.closing_stdin:
            self.close_stdin()
        elif waiting:
            self._selector.unregister(pipe)

    def close_stdin(self) -> None:
        if self.stdin_open:
            self.stdin_open = False
            self._close(self._agent.stdin)

    def sync(self) -> None:
        self.journal.sync()
        self.stdin_journal.sync()

    def _append(self, journal: segments.Writer, data: bytes) -> bytes:
        """Journal ``data``. Return the part that could not be written, which is retried at
        `retry_at`."""
        try:
            while data:
                data = data[journal.append(data) :]
        except OSError as error:
            self.blocked = errno.errorcode.get(error.errno or 0, str(error))
            self.retry_at = time.monotonic() + RETRY
        return data

    def _close(self, descriptor: int) -> None:
        if descriptor in self._selector.get_map():
            self._selector.unregister(descriptor)
        os.close(descriptor)
