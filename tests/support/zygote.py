"""Start Ramet's programs by fork: a process that has imported everything forks ``rametd`` or
``rametctl`` for each request.

A daemon spends 1.5 s of a core on imports and a command 0.3 s; a test run starts more than a
thousand. A forked daemon serves after 50 ms. It differs from ``python -m rametd`` only in its
command line and initial environment in /proc, so `DaemonProcess` records its pid.

Protocol: one datagram on the control socket for each program, JSON, with four descriptors: a pipe
for answers, and the program's standard input, output and error. Into the pipe the zygote writes the
pid, and the exit status once the program has ended (negative: the signal).
"""

import atexit
import json
import os
import select
import selectors
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import IO, Any

from rametd import loading

LIMIT = 1 << 20
"""Bytes of a request."""
LINE = 12
"""Bytes of an answer: a number, right-aligned."""


class Forked:
    """A program that the zygote forked, with the methods of `subprocess.Popen` that tests use."""

    def __init__(
        self, program: str, argv: Sequence[str], *, environ: Mapping[str, str], cwd: Path, streams: Sequence[IO[Any]]
    ) -> None:
        self.args = [program, *argv]
        self._answers, there = os.pipe()
        weakref.finalize(self, os.close, self._answers)
        self._reading = threading.Lock()
        request = {"program": program, "argv": list(argv), "environ": dict(environ), "cwd": str(cwd)}
        socket.send_fds(_control(), [json.dumps(request).encode()], [there, *(each.fileno() for each in streams)])
        os.close(there)
        self.pid = int(os.read(self._answers, LINE))
        self.returncode: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit status. Raise `subprocess.TimeoutExpired`.

        Several threads may wait: all see the answer in the pipe, and the first one reads it. The
        pipe stays open for the others.
        """
        if self.returncode is None and not select.select([self._answers], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        with self._reading:
            if self.returncode is None:
                self.returncode = int(os.read(self._answers, LINE))
        return self.returncode

    def poll(self) -> int | None:
        try:
            return self.wait(timeout=0)
        except subprocess.TimeoutExpired:
            return None

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)


_zygote: tuple[socket.socket, subprocess.Popen[bytes]] | None = None


def _control() -> socket.socket:
    """Return the socket to this process's zygote, which the first use starts, and which ends with
    this process."""
    global _zygote  # noqa: PLW0603  one for each worker of a test run
    if _zygote is None:
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with there:
            program = [sys.executable, "-m", "tests.support.zygote", str(there.fileno())]
            _zygote = here, subprocess.Popen(program, pass_fds=[there.fileno()], cwd=Path(__file__).parents[2])
        atexit.register(here.close)
    return _zygote[0]


DAEMON = ("rametd.__main__", "rametd.app", "rametd.logs", "rametd.platform.memory", "rametd.agents.claude.channel")
CLIENT = (
    "rametctl.__main__",
    "rametctl.cli",
    "rametctl.connection.channel",
    "rametctl.console.output",
    "rametctl.nouns.sessions",
    "ramet.jsonify",
)


def preload() -> None:
    """Import the programs' modules, as they do."""
    with loading.quickly():
        for name in DAEMON:
            import_module(name)
    for name in CLIENT:
        import_module(name)


def serve(control: socket.socket) -> None:
    """Fork a program for each request until the other end of ``control`` is closed."""
    preload()
    waiting = selectors.DefaultSelector()
    waiting.register(control, selectors.EVENT_READ)
    while True:
        for key, _ in waiting.select():
            if key.fileobj is control:
                request, descriptors, _, _ = socket.recv_fds(control, LIMIT, 4)
                if not request:
                    return
                answers, *streams = descriptors
                pid = os.fork()
                if pid == 0:
                    run(json.loads(request), streams)
                for stream in streams:
                    os.close(stream)
                answer(answers, pid)
                waiting.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, answers))
            else:
                pid, answers = key.data
                status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                waiting.unregister(key.fileobj)
                os.close(key.fd)
                answer(answers, status)
                os.close(answers)


def answer(pipe: int, number: int) -> None:
    """Write a number for the test, which may have ended."""
    with suppress(BrokenPipeError):
        os.write(pipe, b"%*d" % (LINE, number))


def run(request: dict[str, Any], streams: Sequence[int]) -> None:
    """Run the program in this fork; never returns."""
    status = 70
    try:
        os.setsid()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        os.closerange(3, 256)
        os.chdir(request["cwd"])
        os.environ.clear()
        os.environ.update(request["environ"])
        sys.argv = [request["program"], *request["argv"]]
        import_module(f"{request['program']}.__main__").main()
        status = 0
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the test run, which closes the socket
    serve(socket.socket(fileno=int(sys.argv[1])))
