"""An attachment to an agent on this machine: by the keeper's connection while it lives, then by the
files in the keeper's directory."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Self

from rametd.domain.errors import KeeperError, WrongStateError
from rametd.keeper import directory, framing, segments
from rametd.keeper.connection import Connection, ConnectionLostError
from rametd.keeper.executor import ExitRecord, JournalLine, Liveness, Recovered

CHUNK = 256 << 10


class LocalAttachment:
    """See `executor.Attachment`. ``settle`` waits for a keeper that is exiting, and returns the
    state of the agent."""

    def __init__(
        self, path: str, offset: int, connection: Connection | None, settle: Callable[[], Awaitable[Recovered]]
    ) -> None:
        self._path = path
        self._offset = offset
        self._connection = connection
        self._settle = settle
        self._disk: _DiskLines | None = None
        self._closed = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Sequence[JournalLine]:
        if self._disk is None and self._connection is not None:
            if lines := await self._connection.next_lines():
                self._offset = lines[-1].end
                return lines
            await self._ensure_over(self._connection)
        if self._closed:
            raise StopAsyncIteration
        if self._disk is None:
            self._disk = await asyncio.to_thread(_DiskLines, self._path, directory.JOURNAL, self._offset)
        if not (lines := await self._disk.next_lines()):
            raise StopAsyncIteration
        return lines

    async def _ensure_over(self, connection: Connection) -> None:
        """Raise the error that ended the connection, unless the agent, the keeper or this side
        ended it."""
        if self._closed or connection.exit is not None:
            return
        failure = connection.failure or ConnectionLostError("the connection to the keeper is closed")
        if not isinstance(failure, ConnectionLostError) or (await self._settle()).liveness is Liveness.ALIVE:
            raise failure

    @property
    def tail(self) -> bytes:
        return b"" if self._disk is None else self._disk.rest

    @property
    def buffered(self) -> int:
        """Bytes of received lines that are not consumed yet; at most one and a half windows and a
        line."""
        return 0 if self._connection is None else self._connection.ready_bytes

    def _live(self) -> Connection:
        if self._connection is None:
            raise WrongStateError("the agent has ended")
        return self._connection

    async def write(self, line: bytes) -> int:
        return await self._live().write(line)

    async def signal(self, name: str) -> None:
        await self._live().signal(name, None)

    def release(self, offset: int) -> None:
        if self._connection is not None:
            self._connection.release(offset)

    def release_stdin(self, offset: int) -> None:
        if self._connection is not None:
            self._connection.release_stdin(offset)

    async def status(self) -> Mapping[str, Any]:
        return await self._live().status()

    async def wait_exit(self) -> ExitRecord | None:
        if self._connection is not None:
            await self._connection.ended()
            if self._connection.exit is not None:
                return self._connection.exit
            if self._closed:
                raise KeeperError("detached before the agent ended")
            await self._ensure_over(self._connection)
        return (await self._settle()).exit

    async def written_since(self, offset: int) -> list[JournalLine]:
        return await asyncio.to_thread(_read_lines, self._path, directory.STDIN, offset)

    async def close(self) -> None:
        self._closed = True
        if self._connection is not None:
            await self._connection.close()
        if self._disk is not None:
            self._disk.close()


class _DiskLines:
    """Reads a journal that no longer grows."""

    def __init__(self, path: str, name: str, offset: int) -> None:
        self._lines = framing.Lines(offset)
        self._reader = segments.Reader(path, name, segments.scan(path, name))
        self._ended = False

    async def next_lines(self) -> list[JournalLine]:
        """Return the lines that the next chunk completes, at least one; none at the end."""
        lines: list[JournalLine] = []
        while not lines and not self._ended:
            # State changes only after the read, so that a cancelled read can be repeated.
            data = await asyncio.to_thread(self._reader.read, self._lines.end, CHUNK)
            self._ended = not data
            lines = [JournalLine(*line) for line in self._lines.feed(data)]
        return lines

    @property
    def rest(self) -> bytes:
        return self._lines.rest

    def close(self) -> None:
        self._reader.close()


def _read_lines(path: str, name: str, offset: int) -> list[JournalLine]:
    """Return all complete lines from ``offset`` on. Raise LookupError if they were released, before
    or during the read."""
    reader = segments.Reader(path, name, segments.scan(path, name))
    lines = framing.Lines(offset)
    found: list[JournalLine] = []
    try:
        while data := reader.read(lines.end, CHUNK):
            found += (JournalLine(*line) for line in lines.feed(data))
    except FileNotFoundError as error:
        raise LookupError(f"{error.filename} was released") from error
    finally:
        reader.close()
    return found
