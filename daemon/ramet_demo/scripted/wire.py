"""The scripted agent's two pipes: lines of JSON in and out, its own requests and their answers, and
the only place where it waits.

Everything runs on one thread. Code that waits for an answer, a child or a time calls `Wire.wait`,
which meanwhile reads stdin and hands each frame to the agent; so control requests are served at any
time, as by the real CLI.
"""

import json
import os
import select
import signal
import time
from collections.abc import Callable, Iterable
from typing import Any

Frame = dict[str, Any]


def new_id() -> str:
    """Return a random UUID, without the two milliseconds that importing `uuid` takes."""
    digits = bytearray(os.urandom(16))
    digits[6] = digits[6] & 0x0F | 0x40
    digits[8] = digits[8] & 0x3F | 0x80
    text = digits.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def encode(frame: Frame) -> bytes:
    return json.dumps(frame, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def changed(line: bytes, changes: Iterable[tuple[str, str]]) -> bytes:
    """Return an encoded line with ASCII texts in it replaced, one after another."""
    for before, after in changes:
        line = line.replace(before.encode(), after.encode())
    return line


def timestamp() -> str:
    now = time.time()
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now * 1000) % 1000:03d}Z"


class Interrupted(Exception):  # noqa: N818 -- a turn of events, not an error
    """The host interrupted the turn."""


class Terminated(Exception):  # noqa: N818
    """SIGTERM came."""


class Request:
    """A control request of the agent: open until the host answers it or the agent withdraws it."""

    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        self.id: str = frame["request_id"]
        self.subtype: str = frame["request"]["subtype"]
        self.answer: Frame | None = None  # the ``response`` of the control_response
        self.withdrawn = False

    @property
    def open(self) -> bool:
        return self.answer is None and not self.withdrawn


class Wire:
    def __init__(self, replay: bool) -> None:
        self.session_id = ""
        self.eof = False
        self.emitted = b""  # the last frame of `emit`
        self.requests: dict[str, Request] = {}  # those that are open
        self.interrupted = False
        self.on_frame: Callable[[Frame], None] = lambda frame: None
        self.tick: Callable[[], float | None] = lambda: (
            None
        )  # run at each turn of `wait`; seconds until it wants the next
        self._replay = replay
        self._partial = bytearray()
        self._terminated = False
        self._woken, wake = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(wake, False)
        self._poll = select.poll()
        self._poll.register(self._woken, select.POLLIN)
        self._poll.register(0, select.POLLIN)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, stack: None)
        signal.signal(signal.SIGTERM, self._terminate)

    def _terminate(self, number: int, stack: object) -> None:
        self._terminated = True

    def send(self, frame: Frame) -> None:
        self.write(encode(frame))

    def write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(1, view) :]

    def emit(self, kind: str, **fields: Any) -> str:
        """Send a frame with the common fields; return its uuid."""
        uuid = new_id()
        self.emitted = encode({"type": kind, **fields, "session_id": self.session_id, "uuid": uuid})
        self.write(self.emitted)
        return uuid

    def request(self, **body: Any) -> Request:
        request = Request({"type": "control_request", "request_id": new_id(), "request": body})
        self.requests[request.id] = request
        self.send(request.frame)
        return request

    def withdraw(self, request: Request) -> None:
        request.withdrawn = True
        self.requests.pop(request.id, None)
        self.send({"type": "control_cancel_request", "request_id": request.id})

    def await_answers(self, requests: list[Request]) -> None:
        """Wait without limit until all are answered or withdrawn; after the end of stdin no answer
        can come."""
        self.wait(lambda: self.eof or not any(request.open for request in requests))

    def sleep(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        self.wait(lambda: time.monotonic() >= end, end)

    def wait(self, done: Callable[[], bool], until: float | None = None) -> None:
        """Serve stdin until ``done()``; ``until`` is when (`time.monotonic`) that may become true
        by itself.

        Raises `Interrupted` and `Terminated`, also where ``done()`` is true already.
        """
        while True:
            wanted = self.tick()
            if self._terminated:
                raise Terminated
            if self.interrupted:
                self.interrupted = False
                raise Interrupted
            if done():
                return
            timeouts = [
                seconds
                for seconds in (wanted, None if until is None else until - time.monotonic())
                if seconds is not None
            ]
            self._serve(max(0.0, min(timeouts)) if timeouts else None)

    def rests(self, until: float) -> bool:
        """Sleep until then; return False if there is something to serve first. Costs less than
        `wait`."""
        return not self._poll.poll(max(0.0, until - time.monotonic()) * 1000 + 1)

    def _serve(self, timeout: float | None) -> None:
        for descriptor, _ in self._poll.poll(None if timeout is None else timeout * 1000 + 1):
            if descriptor == 0:
                self._read()
            else:
                os.read(self._woken, 512)

    def _read(self) -> None:
        data = os.read(0, 1 << 16)
        if not data:
            self.eof = True
            self._poll.unregister(0)
            return
        self._partial += data
        *lines, self._partial = self._partial.split(b"\n")
        for line in lines:
            if line.strip():
                self._receive(json.loads(line))

    def _receive(self, frame: Frame) -> None:
        if frame["type"] != "control_response":
            self.on_frame(frame)
            return
        if self._replay:
            self.send(frame)  # the real CLI echoes the answers that it reads
        request = self.requests.pop(frame["response"]["request_id"], None)
        if request is not None:
            request.answer = frame["response"]
