"""The daemon's end of one connection to a keeper; see `framing` for the protocol.

It is a protocol of the event loop, not a stream: it handles all frames of a received chunk in one
call, so that an answer never waits behind data. A window bounds the data: beyond the consumed
offset the keeper sends at most `framing.WINDOW` bytes, and one line of any length.
"""

import asyncio
import itertools
import struct
import weakref
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar, cast

from rametd.domain.errors import KeeperError, KeeperFencedError, PromptTooLargeError, RametError, WrongStateError
from rametd.keeper import framing
from rametd.keeper.executor import ExitRecord, JournalLine

TIMEOUT = 5.0
"""Seconds in which a keeper must greet and answer. None of its work takes longer; a stopped keeper
is an error."""
BUFFER = memoryview(bytearray(128 << 10))
"""Receive buffer of all connections: the loop passes each chunk on before it receives more. Mapping
and unmapping a new buffer for each chunk takes longer than receiving a line."""
GATHER = 0.025
"""Seconds between two moments at which readers are woken, to handle the lines of many agents
together: one after another, with warm caches, they take a fraction of the time. A line after a
pause wakes its reader at once."""
FENCED = {"OLD_EPOCH", "DISPLACED"}


class ConnectionLostError(KeeperError):
    """The connection ended without EXIT: the keeper exited, or dropped this side."""


class Gatherer:
    """Wakes the readers of all connections of an event loop together."""

    _of_loop: ClassVar["weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Gatherer]"] = weakref.WeakKeyDictionary()

    def __init__(self) -> None:
        self._readers: list[asyncio.Future[None]] = []
        self._last = -GATHER

    @classmethod
    def of(cls, loop: asyncio.AbstractEventLoop) -> "Gatherer":
        return cls._of_loop.setdefault(loop, cls())

    def wake(self, reader: "asyncio.Future[None]") -> None:
        self._readers.append(reader)
        if len(self._readers) > 1:
            return
        loop = reader.get_loop()
        if (due := self._last + GATHER) > loop.time():
            loop.call_at(due, self._wake_all, loop)
        else:
            self._wake_all(loop)

    def _wake_all(self, loop: asyncio.AbstractEventLoop) -> None:
        self._last = loop.time()
        readers, self._readers = self._readers, []
        for reader in readers:
            if not reader.done():
                reader.set_result(None)


class Connection(asyncio.BufferedProtocol):
    """Created by `open`. Requests may run concurrently with one reader of lines."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.hello: Mapping[str, Any] = {}
        self.exit: ExitRecord | None = None
        """The exit record, once the keeper has sent it."""
        self.failure: RametError | None = None
        """Why the connection has ended."""
        self._transport: asyncio.Transport | None = None
        self._greeting: asyncio.Future[tuple[int, bytes]] = loop.create_future()
        self._over: asyncio.Future[None] = loop.create_future()  # done when it reads nothing more
        self._closed: asyncio.Future[None] = loop.create_future()  # done when all written data is sent
        self._decoder = framing.Decoder()
        self._lines = framing.Lines(0)
        self._ready: list[JournalLine] = []
        self.ready_bytes = 0
        self._consumed = 0
        self._reader: asyncio.Future[None] | None = None  # the reader that waits for lines
        self._gatherer = Gatherer.of(loop)
        self._gathered = False  # the gatherer wakes the reader
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._attached: asyncio.Future[None] | None = None

    @classmethod
    async def open(cls, path: Path) -> "Connection":
        """Connect and read the greeting. Raise OSError if no keeper listens, KeeperError for
        another protocol version."""
        async with asyncio.timeout(TIMEOUT):
            _, self = await asyncio.get_running_loop().create_unix_connection(cls, str(path))
            with ExitStack() as undo:
                undo.callback(self._finish)
                try:
                    kind, payload = await self._greeting
                    self.hello = framing.decode_json(payload)
                    versions = self.hello["versions"]
                except (ConnectionLostError, framing.FramingError, KeyError) as error:
                    raise ConnectionLostError(f"the keeper at {path} did not greet: {error}") from error
                if kind != framing.HELLO or framing.PROTOCOL_VERSION not in versions:
                    raise KeeperError(
                        f"the keeper at {path} speaks another protocol", hint="end its session, then resume it"
                    )
                undo.pop_all()
        return self

    async def attach(self, epoch: int, offset: int) -> None:
        """Become the controller. Raise KeeperFencedError, or LookupError for an offset outside the
        journal."""
        self._lines = framing.Lines(offset)
        self._consumed = offset
        self._attached = asyncio.get_running_loop().create_future()
        self._send(framing.encode_json(framing.ATTACH, epoch=epoch, offset=offset))
        await self._answer(self._attached)

    async def next_lines(self) -> list[JournalLine]:
        """Wait for lines and return all available ones. Return none after the last one of an ended
        connection (see `exit` and `failure`)."""
        while not self._ready and not self._over.done():
            self._reader = asyncio.get_running_loop().create_future()
            self._gathered = False
            await self._reader
        lines, self._ready = self._ready, []
        self.ready_bytes = 0
        self._make_room()
        return lines

    async def ended(self) -> None:
        """Wait until either side has ended the connection."""
        await asyncio.wait([self._over])

    async def write(self, line: bytes) -> int:
        """See `Attachment.write`."""
        if len(line) > framing.MAX_PAYLOAD - framing.U64.size:
            raise PromptTooLargeError(f"{len(line)} bytes in one line", hint="at most 64 MiB; put the rest into a file")
        number, answer = self._request()
        self._send(framing.encode(framing.STDIN, framing.U64.pack(number) + line))
        end: int = await self._answer(answer, timeout=None)  # waits while the disk is full
        return end

    async def signal(self, name: str, epoch: int | None) -> None:
        await self._ask(framing.SIGNAL, signal=name, epoch=epoch)

    async def end(self, grace: float, epoch: int | None) -> None:
        """Ask the keeper to end the agent; the connection ends with it."""
        await self._ask(framing.END, grace=grace, epoch=epoch)

    async def status(self) -> dict[str, Any]:
        status: dict[str, Any] = await self._ask(framing.QUERY)
        return status

    def release(self, offset: int) -> None:
        self._notify(framing.RELEASE, offset)

    def release_stdin(self, offset: int) -> None:
        self._notify(framing.RELEASE_STDIN, offset)

    async def close(self) -> None:
        self._finish()
        await asyncio.wait([self._closed])

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
        if self._over.done() and not answer.done():
            raise self._lost()
        try:
            async with asyncio.timeout(timeout):
                return await answer
        except TimeoutError:
            raise KeeperError(
                f"the keeper {self.hello.get('keeper_pid')} does not answer", hint="is it stopped?"
            ) from None

    def _send(self, data: bytes) -> None:
        if self._over.done() or self._transport is None:
            raise self._lost()
        self._transport.write(data)

    def _notify(self, kind: int, offset: int) -> None:
        """Send a message that has no answer, unless the keeper has exited."""
        if not self._over.done() and self._transport is not None:
            self._transport.write(framing.encode(kind, framing.U64.pack(offset)))

    def _lost(self) -> RametError:
        if self.exit is not None:
            return WrongStateError("the agent has ended")
        return self.failure or ConnectionLostError("the connection to the keeper is closed")

    # Frames

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return BUFFER

    def buffer_updated(self, nbytes: int) -> None:
        try:
            for kind, payload in self._decoder.feed(bytes(BUFFER[:nbytes])):
                if self._over.done():
                    return
                if not self._greeting.done():
                    self._greeting.set_result((kind, payload))
                else:
                    self._handle(kind, payload)
                if self.failure is not None or self.exit is not None:
                    self._finish()
        except (struct.error, framing.FramingError, LookupError, TypeError) as error:
            self._fail(f"the connection to the keeper broke: {error!r}")

    def eof_received(self) -> None:
        self._fail("the keeper ended the connection")

    def connection_lost(self, error: Exception | None) -> None:
        self._fail("the connection to the keeper broke: " + repr(error) if error else "the connection is closed")
        self._closed.set_result(None)

    def _fail(self, words: str) -> None:
        if not self._over.done():
            self.failure = ConnectionLostError(words)
            self._finish()

    def _finish(self) -> None:
        """End the connection, and wake all callers that wait for an answer or for lines."""
        if self._over.done():
            return
        self._over.set_result(None)
        if self._transport is not None:
            self._transport.close()
        lost = self._lost()
        for answer in (*self._answers.values(), self._greeting, *([self._attached] if self._attached else ())):
            if not answer.done():
                answer.set_exception(lost)
                answer.exception()  # marks it as retrieved, as there may be no waiter
        self._answers.clear()
        self._wake_reader()

    def _wake_reader(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    def _handle(self, kind: int, payload: bytes) -> None:
        if kind == framing.DATA:
            for start, end, data in self._lines.feed(payload[framing.U64.size :]):
                self._ready.append(JournalLine(start, end, data))
                self.ready_bytes += len(data)
            self._make_room()
            if self.ready_bytes >= framing.WINDOW // 4:
                self._wake_reader()
            elif self._ready and self._reader is not None and not self._gathered:
                self._gathered = True
                self._gatherer.wake(self._reader)
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
        if answer is not None and not answer.done():  # done: the request was cancelled
            answer.set_result(result)

    def _make_room(self) -> None:
        """Advance the window in steps of a quarter, unless unread lines fill half of it. An
        incomplete line counts as consumed: else a line longer than the window would never
        arrive."""
        received = self._lines.end
        if self.ready_bytes < framing.WINDOW // 2 and received - self._consumed >= framing.WINDOW // 4:
            self._notify(framing.CONSUMED, received)
            self._consumed = received
