"""Show the demonstration: a sentence, a command, and its output as it arrives."""

import errno
import fcntl
import os
import pty
import re
import select
import shlex
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.text import Text

from ramet_demo.stage import BrokenPromiseError

ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
TICK_S = 0.1
WATCH_DEADLINE_S = 30.0
INTERRUPTED = 130
ROWS = 50


@dataclass(frozen=True, slots=True)
class Shown:
    """A command and its output, escape sequences included."""

    command: str
    output: str

    @property
    def plain(self) -> str:
        return ESCAPES.sub("", self.output).replace("\r", "")


class Teller:
    """Prints text and runs commands. They get a terminal if there is one, or for a picture of
    ``columns``; else a pipe."""

    def __init__(self, console: Console, columns: int | None = None) -> None:
        self._console = console
        self._columns = columns
        self.on_terminal = console.is_terminal
        self.records = columns is not None

    def say(self, text: str) -> None:
        self._console.print()
        self._console.print(Text.assemble(("▌ ", "bold green"), (text, "bold")))

    def add(self, text: str) -> None:
        self._console.print(Text(text))

    def command(self, command: str) -> None:
        self._console.print(Text.assemble(("$ ", "green"), (command, "cyan")), soft_wrap=True)

    def run(
        self, command: str, environ: Mapping[str, str], cwd: Path, until: Callable[[Shown], bool] | None = None
    ) -> Shown:
        """Run and show a command of Ramet, git or Python.

        Interrupt it once ``until``, called ten times a second, returns True. Raise
        `BrokenPromiseError` if the command fails.
        """
        self.command(command)
        self._console.file.flush()
        reader, writer = self._open()
        process = subprocess.Popen(
            argv_of(command), cwd=cwd, env=dict(environ), stdin=subprocess.DEVNULL, stdout=writer, stderr=writer
        )
        os.close(writer)
        try:
            shown = self._follow(command, process, reader, until)
            code = process.wait()
        finally:
            os.close(reader)
            if process.poll() is None:
                process.kill()
                process.wait()
        if code not in ({0} if until is None else {0, INTERRUPTED}):
            raise BrokenPromiseError(f"`{command}` ended with {code}")
        return shown

    def _open(self) -> tuple[int, int]:
        if not (self.on_terminal or self.records):
            return os.pipe()
        reader, writer = pty.openpty()
        size = struct.pack("HHHH", ROWS, self._columns or self._console.width, 0, 0)
        fcntl.ioctl(writer, termios.TIOCSWINSZ, size)
        return reader, writer

    def _follow(
        self, command: str, process: subprocess.Popen[bytes], reader: int, until: Callable[[Shown], bool] | None
    ) -> Shown:
        data, end = b"", time.monotonic() + WATCH_DEADLINE_S
        while True:
            if until is not None and time.monotonic() > end:
                raise BrokenPromiseError(
                    f"`{command}` did not show the expected text within {WATCH_DEADLINE_S:.0f} seconds"
                )
            if select.select([reader], [], [], TICK_S)[0]:
                piece = read(reader)
                if not piece:
                    return Shown(command, data.decode("utf-8", "replace"))
                data += piece
                self._echo(piece)
            elif until is not None and until(Shown(command, data.decode("utf-8", "replace"))):
                until = None
                process.send_signal(signal.SIGINT)

    def _echo(self, piece: bytes) -> None:
        if self.records and not self.on_terminal:
            piece = ESCAPES.sub("", piece.decode("utf-8", "replace")).replace("\r", "").encode()
        self._console.file.flush()
        sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()


def read(descriptor: int) -> bytes:
    """Read the available output; b"" at the end, which Linux reports as an error of a terminal."""
    try:
        return os.read(descriptor, 1 << 16)
    except OSError as error:
        if error.errno == errno.EIO:
            return b""
        raise


def argv_of(command: str) -> Sequence[str]:
    """Return the arguments of a command, with this installation's programs rather than those on
    PATH."""
    program, *arguments = shlex.split(command)
    match program:
        case "rametctl":
            return [sys.executable, "-P", "-m", "rametctl", *arguments]
        case "python":
            return [sys.executable, *arguments]
        case _:
            return [program, *arguments]
