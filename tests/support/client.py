"""Run rametctl in tests: in this process, as a process, and on a terminal with a readable
screen."""

import fcntl
import io
import os
import pty
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from unittest import mock

import pyte
from ramet.paths import directories
from rametctl.__main__ import application, run

from tests.support.eventually import PATIENCE_S
from tests.support.fake_daemon import FakeDaemon
from tests.support.fake_state import State


@dataclass(frozen=True)
class Result:
    """Exit code and output of a command."""

    code: int
    out: str
    err: str


@dataclass
class World:
    """A private home and runtime directory, and a fake daemon that serves there (see `world`)."""

    home: Path
    runtime: Path
    cwd: Path
    state: State = field(default_factory=State)
    extra: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.daemon = FakeDaemon(self.state, directories(self.environ).socket, home=self.home / "state")

    @property
    def environ(self) -> dict[str, str]:
        """The environment of the commands; of the person who runs the tests it has only PATH."""
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "LANG": "C.UTF-8",
            "TZ": "UTC",
            "TERM": "xterm-256color",
            "RAMET_HOME": str(self.home / "state"),
            "RAMET_RUNTIME_DIR": str(self.runtime),
            "XDG_CONFIG_HOME": str(self.home / "config"),
            "RAMET_AUTOSTART": "0",
            **self.extra,
        }

    def run(
        self,
        *args: str,
        stdin: bytes | None = None,
        env: Mapping[str, str] | None = None,
        terminal: bool = False,
    ) -> Result:
        """Run ``rametctl ARGS`` in this process; ``stdin`` None is /dev/null, bytes come through a
        pipe-like file.

        ``terminal``: both outputs claim to be a terminal.
        """
        stream = _TerminalLike if terminal else io.TextIOWrapper
        out, err = (stream(io.BytesIO(), encoding="utf-8", newline="") for _ in range(2))
        with tempfile.TemporaryFile() if stdin is not None else open(os.devnull, "rb") as source:  # noqa: PTH123
            if stdin is not None:
                source.write(stdin)
                source.seek(0)
            reader = io.TextIOWrapper(source, encoding="utf-8")
            before = Path.cwd()
            os.chdir(self.cwd)
            try:
                with (
                    mock.patch.dict(os.environ, {**self.environ, **(env or {})}, clear=True),
                    mock.patch.multiple(sys, stdin=reader, stdout=out, stderr=err),
                ):
                    app = application(list(args))
                    code = run(app, list(args))
            finally:
                os.chdir(before)
        for connection in app.connections:
            connection.close()
        out.flush()
        err.flush()
        return Result(code, _text(out), _text(err))

    def popen(self, *args: str, env: Mapping[str, str] | None = None, **options: Any) -> "subprocess.Popen[str]":
        """Start ``rametctl ARGS`` as a process with pipes."""
        return subprocess.Popen(
            [sys.executable, "-m", "rametctl", *args],
            env={**self.environ, **(env or {})},
            cwd=self.cwd,
            text=True,
            **{"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options},
        )

    def terminal(
        self, *args: str, columns: int = 80, rows: int = 24, env: Mapping[str, str] | None = None
    ) -> "Terminal":
        """Start ``rametctl ARGS`` on a terminal of that size."""
        return Terminal(
            [sys.executable, "-m", "rametctl", *args], {**self.environ, **(env or {})}, self.cwd, columns, rows
        )


class _TerminalLike(io.TextIOWrapper):
    def isatty(self) -> bool:
        return True


def _text(stream: io.TextIOWrapper) -> str:
    buffer = stream.buffer
    assert isinstance(buffer, io.BytesIO)
    return buffer.getvalue().decode()


@contextmanager
def world(tmp_path: Path, *, serve: bool = True) -> Iterator[World]:
    """Yield a world with a daemon that serves; end and remove everything afterwards."""
    runtime = Path(tempfile.mkdtemp(prefix="rmt-"))
    home, cwd = tmp_path / "home", tmp_path / "cwd"
    home.mkdir()
    cwd.mkdir()
    made = World(home, runtime, cwd)
    try:
        if serve:
            made.daemon.start()
        yield made
    finally:
        made.daemon.stop()
        shutil.rmtree(runtime)


class Terminal:
    """A process on a pseudo terminal, and its screen."""

    def __init__(self, command: Sequence[str], environ: Mapping[str, str], cwd: Path, columns: int, rows: int) -> None:
        self._screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self._screen)
        self.raw = bytearray()
        self._interpreted = 0
        """Bytes of ``raw`` that are on the screen."""
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.process = subprocess.Popen(
            command,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=dict(environ),
            cwd=cwd,
            start_new_session=True,
        )
        os.close(slave)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.close()

    def close(self) -> None:
        """Close the terminal. It is no process's controlling terminal, so that none gets SIGHUP."""
        if self._master >= 0:
            os.close(self._master)
            self._master = -1

    @property
    def screen(self) -> pyte.Screen:
        """Interpret the output and return the screen. This is slow, so nothing else does it."""
        if self._interpreted < len(self.raw):
            self._stream.feed(bytes(self.raw[self._interpreted :]))
            self._interpreted = len(self.raw)
        return self._screen

    @property
    def lines(self) -> list[str]:
        """Return the lines of the screen, without blanks on the right and below."""
        return [line.rstrip() for line in "\n".join(self.screen.display).rstrip().split("\n")]

    def shows(self, text: str, *, within: float = PATIENCE_S) -> None:
        """Return once ``text`` is on the screen."""
        self._until(lambda: any(text in line for line in self.screen.display), f"{text!r} is not shown", within)

    def writes(self, text: str, *, within: float = PATIENCE_S) -> None:
        """Return once the program has written ``text`` in one piece, from now on."""
        began = len(self.raw)
        self._until(lambda: text.encode() in self.raw[began:], f"{text!r} is not written", within)

    def type(self, text: str) -> None:
        os.write(self._master, text.encode(errors="surrogateescape"))

    def resize(self, columns: int, rows: int) -> None:
        """Change the size, as a window that cuts lines and does not wrap them again."""
        self.screen.resize(rows, columns)
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        os.killpg(self.process.pid, signal.SIGINT)

    def ends(self, *, within: float = PATIENCE_S) -> int:
        """Wait for the end and the last output; return the exit code."""
        self._until(lambda: self.process.poll() is not None, "it goes on", within)
        while self._read(0):
            pass
        return self.process.returncode

    def _until(self, condition: Any, complaint: str, within: float) -> None:
        deadline = time.monotonic() + within
        while not condition():
            if time.monotonic() > deadline:
                raise AssertionError(f"{complaint} within {within} s; the screen:\n" + "\n".join(self.lines))
            self._read(0.02)

    def _read(self, timeout: float) -> bool:
        ready, _, _ = select.select([self._master], [], [], timeout)
        if not ready:
            return False
        try:
            data = os.read(self._master, 65536)
        except OSError:
            # Linux reports EIO once the other side is closed.
            time.sleep(timeout)
            return False
        self.raw += data
        return bool(data)
