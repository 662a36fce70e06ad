"""A minimal HTTP/1.1 server for a stand-in API: keep-alive, JSON replies, server-sent events;
loopback only."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

MAX_HEAD = 1 << 18


class Request(NamedTuple):
    method: str
    path: str  # without the query
    headers: dict[str, str]  # names in lower case
    body: bytes


class Reply:
    """The one reply to a request: either `json`, or `start_events` followed by any number of
    `event`."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._streams = False

    async def json(self, status: int, value: Any, headers: dict[str, str] | None = None) -> None:
        body = json.dumps(value).encode()
        lines = {"content-type": "application/json", "content-length": str(len(body)), **(headers or {})}
        self._head(status, lines)
        self._writer.write(body)
        await self._writer.drain()

    def start_events(self, headers: dict[str, str]) -> None:
        self._streams = True
        self._head(200, {"content-type": "text/event-stream", "transfer-encoding": "chunked", **headers})

    async def event(self, kind: str, data: dict[str, Any]) -> None:
        """``kind``: the type of the event, "" for one that has only data."""
        head, data = (f"event: {kind}\n", {"type": kind, **data}) if kind else ("", data)
        chunk = f"{head}data: {json.dumps(data)}\n\n".encode()
        self._writer.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
        await self._writer.drain()

    async def end(self) -> None:
        if self._streams:
            self._writer.write(b"0\r\n\r\n")
            await self._writer.drain()

    def _head(self, status: int, headers: dict[str, str]) -> None:
        lines = [f"HTTP/1.1 {status} Scripted", *(f"{name}: {value}" for name, value in headers.items())]
        self._writer.write("\r\n".join([*lines, "", ""]).encode())


Handler = Callable[[Request, Reply], Awaitable[None]]


async def _read(reader: asyncio.StreamReader) -> Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, target, _ = head[0].split(" ")
    headers = {name.lower(): value.strip() for name, value in (line.split(":", 1) for line in head[1:] if line)}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Request(method, target.partition("?")[0], headers, body)


class _Reader(asyncio.StreamReader):
    """Notices that the client has hung up, without reading ahead."""

    def __init__(self) -> None:
        super().__init__(MAX_HEAD)
        self.gone = asyncio.Event()

    def feed_eof(self) -> None:
        super().feed_eof()
        self.gone.set()

    def set_exception(self, exc: Exception) -> None:
        super().set_exception(exc)
        self.gone.set()


async def serve(handler: Handler, port: int) -> asyncio.Server:
    """Serve on loopback; port 0 takes a free one. The handler of a client that hangs up is
    cancelled."""

    async def connection(reader: _Reader, writer: asyncio.StreamWriter) -> None:
        gone = asyncio.ensure_future(reader.gone.wait())
        work: asyncio.Future[None] | None = None
        try:
            while True:
                request = await _read(reader)
                reply = Reply(writer)
                work = asyncio.ensure_future(handler(request, reply))
                await asyncio.wait([work, gone], return_when=asyncio.FIRST_COMPLETED)
                if not work.done():
                    return
                work.result()
                await reply.end()
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError, ValueError):
            pass  # the client hung up or does not speak HTTP
        finally:
            gone.cancel()
            if work is not None:
                work.cancel()
            writer.close()

    loop = asyncio.get_running_loop()

    def protocol() -> asyncio.StreamReaderProtocol:
        reader = _Reader()
        return asyncio.StreamReaderProtocol(reader, lambda _, writer: connection(reader, writer))

    return await loop.create_server(protocol, "127.0.0.1", port)
