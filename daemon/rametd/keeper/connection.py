"""The daemon's end of one connection to a keeper; see `framing` for the protocol.

A reader task takes every frame at once, so that an answer is never stuck behind data. What bounds the data is the window: the keeper
sends no further than what the consumer took plus `framing.WINDOW`, and one line, however long, on top.
"""

import asyncio
import itertools
import struct
from collections import deque
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from rametd.domain.errors import KeeperError, KeeperFencedError, PromptTooLargeError, RametError, WrongStateError
from rametd.keeper import framing
from rametd.keeper.executor import ExitRecord, JournalLine

TIMEOUT = 5.0
"""Seconds in which a keeper greets and answers. It has no work that takes longer; a stopped one is an error."""
FENCED = {"OLD_EPOCH", "DISPLACED"}


class ConnectionLostError(KeeperError):
    """The connection ended without a word: the keeper left, or dropped us."""


class Connection:
    """Made by `open`. Requests may run at the same time as one reader of lines."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, hello: Mapping[str, Any]) -> None:
        self.hello = hello
        self.exit: ExitRecord | None = None
        """The exit record, once the keeper has told it."""
        self.failure: RametError | None = None
        """Why the connection has ended."""
        self._reader, self._writer = reader, writer
        self._lines = framing.Lines(0)
        self._ready: deque[JournalLine] = deque()
        self.ready_bytes = 0
        self._consumed = 0
        self._changed = asyncio.Event()
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._attached: asyncio.Future[None] | None = None
        self._task = asyncio.create_task(self._run(), name="keeper connection")
        self._task.add_done_callback(self._finish)

    @classmethod
    async def open(cls, path: Path) -> "Connection":
        """Connect and read the greeting. Raises OSError when nobody listens, KeeperError for a keeper of another protocol."""
        async with asyncio.timeout(TIMEOUT):
            reader, writer = await asyncio.open_unix_connection(path)
            with ExitStack() as undo:
                undo.callback(writer.close)
                try:
                    kind, payload = await _read_frame(reader)
                    hello = framing.decode_json(payload)
                    versions = hello["versions"]
                except (EOFError, framing.FramingError, KeyError) as error:
                    raise ConnectionLostError(f"the keeper at {path} did not greet: {error}") from error
                if kind != framing.HELLO or framing.PROTOCOL_VERSION not in versions:
                    raise KeeperError(
                        f"the keeper at {path} speaks another protocol", hint="end its session, then resume it"
                    )
                undo.pop_all()
        return cls(reader, writer, hello)

    async def attach(self, epoch: int, offset: int) -> None:
        """Become the controller. Raises KeeperFencedError, or LookupError for an offset that the journal does not have."""
        self._lines = framing.Lines(offset)
        self._consumed = offset
        self._attached = asyncio.get_running_loop().create_future()
        self._send(framing.encode_json(framing.ATTACH, epoch=epoch, offset=offset))
        await self._answer(self._attached)

    async def next_line(self) -> JournalLine | None:
        """The next line; None when the connection has ended (`exit` or `failure` says why) and all lines are out."""
        while not self._ready:
            if self._task.done():
                return None
            self._changed.clear()
            await self._changed.wait()
        line = self._ready.popleft()
        self.ready_bytes -= len(line.data)
        self._make_room()
        return line

    async def ended(self) -> None:
        """Wait until the connection has ended, by whomever."""
        await asyncio.wait([self._task])

    async def write(self, line: bytes) -> int:
        """See `Attachment.write`."""
        if len(line) > framing.MAX_PAYLOAD - framing.U64.size:
            raise PromptTooLargeError(f"{len(line)} bytes in one line", hint="at most 64 MiB: put the rest into a file")
        number, answer = self._request()
        self._send(framing.encode(framing.STDIN, framing.U64.pack(number) + line))
        end: int = await self._answer(answer, timeout=None)  # as long as the disk is full
        return end

    async def signal(self, name: str, epoch: int | None) -> None:
        await self._ask(framing.SIGNAL, signal=name, epoch=epoch)

    async def end(self, grace: float, epoch: int | None) -> None:
        """Begin the end of the agent; the connection ends with it."""
        await self._ask(framing.END, grace=grace, epoch=epoch)

    async def status(self) -> dict[str, Any]:
        status: dict[str, Any] = await self._ask(framing.QUERY)
        return status

    def release(self, offset: int) -> None:
        self._tell(framing.RELEASE, offset)

    def release_stdin(self, offset: int) -> None:
        self._tell(framing.RELEASE_STDIN, offset)

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])
        with suppress(OSError):
            await self._writer.wait_closed()

    # Requests

    def _request(self) -> tuple[int, asyncio.Future[Any]]:
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        return number, answer

    async def _ask(self, kind: int, **fields: object) -> Any:
        number, answer = self._request()
        self._send(framing.encode_json(kind, id=number, **fields))
        return await self._answer(answer)

    async def _answer(self, answer: asyncio.Future[Any], timeout: float | None = TIMEOUT) -> Any:  # noqa: ASYNC109
        if self._task.done() and not answer.done():
            raise self._lost()
        try:
            async with asyncio.timeout(timeout):
                return await answer
        except TimeoutError:
            raise KeeperError(
                f"the keeper {self.hello.get('keeper_pid')} does not answer", hint="is it stopped?"
            ) from None

    def _send(self, data: bytes) -> None:
        if self._task.done():
            raise self._lost()
        self._writer.write(data)

    def _tell(self, kind: int, offset: int) -> None:
        """Needs no answer, and nobody to hear it: one that has left has no more use for it."""
        if not self._task.done():
            self._writer.write(framing.encode(kind, framing.U64.pack(offset)))

    def _lost(self) -> RametError:
        if self.exit is not None:
            return WrongStateError("the agent has ended")
        return self.failure or ConnectionLostError("the connection to the keeper is closed")

    # Frames

    async def _run(self) -> None:
        try:
            while self.failure is None and self.exit is None:
                self._handle(*await _read_frame(self._reader))
        except EOFError:
            self.failure = ConnectionLostError("the keeper ended the connection")
        except (OSError, struct.error, framing.FramingError, LookupError, TypeError) as error:
            self.failure = ConnectionLostError(f"the connection to the keeper broke: {error!r}")

    def _finish(self, _: asyncio.Task[None]) -> None:
        """A callback of the task: it runs even if the task was cancelled before its first step."""
        self._writer.close()
        lost = self._lost()
        for answer in (*self._answers.values(), *([self._attached] if self._attached else ())):
            if not answer.done():
                answer.set_exception(lost)
                answer.exception()  # whoever still waits gets it; nobody has to
        self._answers.clear()
        self._changed.set()

    def _handle(self, kind: int, payload: bytes) -> None:
        if kind == framing.DATA:
            for start, end, data in self._lines.feed(payload[framing.U64.size :]):
                self._ready.append(JournalLine(start, end, data))
                self.ready_bytes += len(data)
            self._make_room()
            self._changed.set()
        elif kind == framing.WRITTEN:
            number, end = framing.U64_PAIR.unpack(payload)
            self._resolve(number, end)
        elif kind in (framing.DONE, framing.STATUS):
            answer = framing.decode_json(payload)
            self._resolve(answer["id"], answer)
        elif kind == framing.ATTACHED and self._attached is not None:
            self._attached.set_result(None)
        elif kind == framing.EXIT:
            self.exit = ExitRecord.from_record(framing.decode_json(payload))
        elif kind == framing.REFUSED:
            refusal = framing.decode_json(payload)
            if refusal["reason"] in FENCED:
                self.failure = KeeperFencedError(refusal["message"])
            else:
                self.failure = KeeperError(refusal["message"])
                if self._attached is not None and not self._attached.done():
                    self._attached.set_exception(LookupError(refusal["message"]))
        elif kind == framing.ERROR:
            self._refuse(framing.decode_json(payload))

    def _refuse(self, error: Mapping[str, Any]) -> None:
        number = error.get("id", error.get("sequence"))
        kind = {"OLD_EPOCH": KeeperFencedError, "ENDED": WrongStateError, "STDIN_CLOSED": WrongStateError}
        refusal = kind.get(error["reason"], KeeperError)(error["message"])
        answer = self._answers.pop(number, None) if isinstance(number, int) else None
        if answer is None:
            self.failure = refusal
        elif not answer.done():
            answer.set_exception(refusal)

    def _resolve(self, number: int, result: object) -> None:
        answer = self._answers.pop(number, None)
        if answer is not None and not answer.done():  # done: whoever asked was cancelled
            answer.set_result(result)

    def _make_room(self) -> None:
        """Open the window anew, in steps of a quarter, unless what is ready fills half of it. A line that has not come whole
        counts as taken, or one that is longer than the window would never come."""
        received = self._lines.end
        if self.ready_bytes < framing.WINDOW // 2 and received - self._consumed >= framing.WINDOW // 4:
            self._tell(framing.CONSUMED, received)
            self._consumed = received


async def _read_frame(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    length, kind = framing.HEADER.unpack(await reader.readexactly(framing.HEADER.size))
    if length > framing.MAX_PAYLOAD:
        raise framing.FramingError(f"a frame of {length} bytes")
    return kind, await reader.readexactly(length)
