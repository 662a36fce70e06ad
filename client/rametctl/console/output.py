"""Output: the one place that knows terminals, colour and width, and that makes every text safe to
print.

On a terminal lines are coloured, and Rich wraps long ones; elsewhere they are plain text. Rich is
imported on demand, as it takes as long as the rest of the client.
"""

import io
import os
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TextIO

from ramet import jsonify
from ramet.visible import escaped, visible

from rametctl.console.lines import (
    Line,
    Look,
    Span,
    aligned_row,
    cell_width,
    cropped,
    line,
    plain_row,
    safe,
    to_text,
    wrapped,
)

if TYPE_CHECKING:
    from rich.console import Console

_SGR = {
    "bold": "1",
    "dim": "2",
    "italic": "3",
    "underline": "4",
    "strike": "9",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "blue": "34",
    "magenta": "35",
    "cyan": "36",
}


class Output:
    """Standard output and error of one command.

    With `--json`, the methods for people print nothing on standard output; without it, those for
    programs print nothing.
    """

    def __init__(self, stdout: TextIO, stderr: TextIO, environ: Mapping[str, str], *, json: bool = False) -> None:
        self.json_mode = json
        self.answered = False
        self.stdout = stdout
        self.stderr = stderr
        capable = environ.get("TERM", "") != "dumb"
        self.terminal = stdout.isatty() and capable and not json
        self.dumb = stdout.isatty() and not capable
        """Whether standard output is a terminal that cannot move the cursor."""
        self.error_terminal = stderr.isatty() and capable
        self._unended = False  # whether the last line of a command's output lacks its line feed
        self.colour = self.terminal and not environ.get("NO_COLOR")
        self.reflows = not environ.get("XTERM_VERSION")
        """Whether the terminal wraps lines again when it becomes narrower; of the common ones only
        xterm cuts them."""
        self._environ = environ
        self._console: Console | None = None

    @property
    def width(self) -> int:
        """Columns of the terminal; 80 without one."""
        if not self.terminal:
            return 80
        try:
            return os.get_terminal_size(self.stdout.fileno()).columns or 80
        except (OSError, ValueError):
            return 80

    @property
    def height(self) -> int:
        """Lines of the terminal; 24 without one."""
        try:
            return os.get_terminal_size(self.stdout.fileno()).lines or 24
        except (OSError, ValueError):
            return 24

    def look(self, *, folded: bool = True) -> Look:
        """Return how to draw a transcript on this output."""
        return Look(self.width if self.terminal else None, folded)

    @property
    def console(self) -> "Console":
        """Console of Rich, for output that only a terminal shows."""
        if self._console is None:
            self._console = self._make_console(self.stdout, colour=self.colour)
        return self._console

    # For programs

    def json(self, value: object, *, stream: bool = False) -> None:
        """Print one JSON document per line, flushed, so that a stream's reader need not wait for a
        full buffer.

        ``value`` is a message, a sequence of messages, or anything else that JSON can hold. A
        document that is not part of a stream is the only answer; none may follow it.
        """
        if self.json_mode:
            self.answered = not stream
            self.json_line(jsonify.dumps(jsonify.jsonable(value)))

    def json_line(self, text: str) -> None:
        """Print a JSON text; its strings are made safe for a terminal too."""
        if self.json_mode:
            self.stdout.write(escaped(text) + "\n")
            self.stdout.flush()

    # For people

    def show(self, *lines: Line) -> None:
        if self.json_mode:
            return
        self.stdout.write(self._printed(lines))
        self.stdout.flush()

    def _printed(self, lines: Iterable[Line]) -> str:
        """Return the lines as written: plain, or coloured and wrapped."""
        if not self.terminal:
            return "".join([visible(item.text).rstrip() + "\n" for item in lines])
        width = self.width
        return "".join(
            " " * piece.indent + self._painted(piece) + "\n"
            for item in map(safe, lines)
            for piece in wrapped(item, width)
        )

    def _painted(self, item: Line) -> str:
        return "".join(self.paint(text, style) for text, style in item.spans)

    def text(self, *texts: str) -> None:
        self.show(*(line(text) for text in texts))

    def raw(self, *texts: str) -> None:
        """Print lines for programs: exact in a pipe, safe on a terminal."""
        if not self.json_mode:
            self.stdout.write("".join((visible(text) if self.terminal else text) + "\n" for text in texts))
            self.stdout.flush()

    def binary(self, data: bytes) -> None:
        """Write bytes unchanged: a patch in a pipe, and the output of a person's own command."""
        if not self.json_mode:
            self.stdout.flush()
            self.stdout.buffer.write(data)
            self.stdout.buffer.flush()
            self._unended = not data.endswith(b"\n")

    def answer(self, value: object, shown: Iterable[Line | str], *, empty: str = "", stream: bool = False) -> None:
        """Print ``value`` as `json`, and for people its lines: ``shown``, or ``empty`` for an empty
        list."""
        self.json(value, stream=stream)
        if empty and not value:
            shown = [empty]
        self.show(*(line(each) if isinstance(each, str) else each for each in shown))

    def warn(self, warnings: Iterable[str], of: str = "") -> None:
        """Print warnings on standard error. ``of`` is the name of the item that they are about; the
        JSON of an item has its warnings."""
        for warning in () if of and self.json_mode else warnings:
            label = "" if warning.startswith("tip: ") else f"{of}: " if of else "warning: "
            self.note(f"rametctl: {label}{warning}")

    def hint(self, text: str) -> None:
        """Print advice for a person on a terminal; scripts do not get it."""
        if self.terminal:
            self.show(line((text, "dim")))

    def note(self, text: str) -> None:
        """Print a note, which is not part of the answer, on standard error."""
        self.stderr.write(f"{visible(text)}\n")
        self.stderr.flush()

    def erase_echo(self) -> None:
        """Erase the ``^C`` that a terminal echoes, so that the next output begins a line. It stays
        behind an unended line of a command's output."""
        if self.error_terminal:
            self.stderr.write("\n" if self._unended else "\r\x1b[K")
            self.stderr.flush()

    def confirm(self, question: str) -> bool:
        """Ask on standard error; no is the default."""
        import click

        return click.confirm(visible(question), err=True)

    def paint(self, text: str, style: str) -> str:
        """Return ``text`` with escape sequences for ``style`` if colour is on."""
        codes = ";".join(_SGR[word] for word in style.split())
        return f"\x1b[{codes}m{text}\x1b[0m" if self.colour and codes else text

    @contextmanager
    def spinner(self, text: str) -> Iterator[None]:
        """Show progress on standard error after one second, on a terminal only."""
        if not self.error_terminal:
            yield
            return
        status: list[Any] = []
        lock = threading.Lock()
        over = threading.Event()

        def start() -> None:
            console = self._make_console(self.stderr, colour=not self._environ.get("NO_COLOR"))
            with lock:
                # The work may have ended since the timer fired.
                if not over.is_set():
                    status.append(console.status(visible(text)))
                    status[0].start()

        timer = threading.Timer(1.0, start)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            with lock:
                over.set()
            if status:
                status[0].stop()

    @contextmanager
    def live(self) -> "Iterator[LiveView]":
        """Open a view that is redrawn in place. Its end restores the cursor, also after SIGTERM."""
        import signal

        from rich.live import Live

        def leave(number: int, _frame: object) -> None:
            raise SystemExit(128 + number)

        before = signal.signal(signal.SIGTERM, leave)
        try:
            with Live(console=self.console, auto_refresh=False, transient=False, vertical_overflow="crop") as live:
                yield LiveView(live)
        finally:
            signal.signal(signal.SIGTERM, before)

    def fitted(self, lines: Iterable[Line]) -> Iterator[Line]:
        """Wrap lines for the terminal; leave them unchanged without one."""
        for item in map(safe, lines):
            yield from wrapped(item, self.width) if self.terminal else [item]

    def page(self, lines: Iterable[Line], *, paged: bool = True, at_end: bool = False) -> None:
        """Show lines of any length: through $PAGER (``less -FRX``) on a terminal unless disabled,
        plainly elsewhere.

        ``at_end`` opens ``less`` at the last line.
        """
        if self.json_mode:
            return
        text = "".join(" " * each.indent + self._painted(each) + "\n" for each in map(safe, lines))
        if not self.terminal or not paged:
            self.stdout.write(text)
            self.stdout.flush()
            return
        import shlex
        import shutil
        import subprocess

        command = shlex.split(self._environ.get("PAGER", "")) or ["less", "-FRX"]
        if command == ["cat"] or shutil.which(command[0]) is None:
            self.stdout.write(text)
            self.stdout.flush()
            return
        if at_end and os.path.basename(command[0]) == "less":  # noqa: PTH119  a name, not a path
            command.append("+G")
        pager = subprocess.Popen(command, stdin=subprocess.PIPE, env={**self._environ, "LESS": self._less()})
        assert pager.stdin is not None
        # The reader may leave early.
        with suppress(BrokenPipeError), pager.stdin:
            pager.stdin.write(text.encode("utf-8", "replace"))
        # The pager handles Ctrl-C; this process ends when the pager does.
        while True:
            with suppress(KeyboardInterrupt):
                pager.wait()
                return

    def _less(self) -> str:
        return self._environ.get("LESS", "FRX")

    def _make_console(self, stream: TextIO, *, colour: bool) -> "Console":
        from rich.console import Console

        return Console(file=stream, no_color=not colour, highlight=False, markup=False, emoji=False, soft_wrap=False)

    def table(
        self,
        headers: Sequence[str],
        rows: Iterable[Sequence[Span]],
        *,
        shrink: Sequence[tuple[str, int]],
        right: frozenset[str] = frozenset(),
    ) -> list[Line]:
        """Aligned columns, at most as wide as the terminal.

        ``shrink``: the headers that become narrower if the table is too wide, in order, each with
        its least width; ``right``: those aligned to the right. Plain text is never cut: scripts and
        logs get complete names.
        """
        cells = [[(header, "dim") for header in headers]]
        cells += [[(visible(text).replace("\n", "␊"), style) for text, style in row] for row in rows]
        widths = [max(cell_width(row[index][0]) for row in cells) for index in range(len(headers))]
        aligned = [header in right for header in headers]
        if not self.terminal:
            return [line(plain_row(row, widths, aligned)) for row in cells]
        excess = sum(widths) + 2 * (len(widths) - 1) - self.width
        for header, least in shrink:
            index = headers.index(header)
            cut = min(max(excess, 0), max(widths[index] - least, 0))
            widths[index] -= cut
            excess -= cut
        return [cropped(aligned_row(row, widths, aligned), self.width) for row in cells]


class Foot:
    """Lines at the bottom of a terminal that are drawn again while others scroll away above them.

    `Foot.close` erases them, so that later output begins on a clean line.
    """

    def __init__(self, output: Output) -> None:
        self._output = output
        self._widths: list[int] = []

    def draw(self, above: Iterable[Line], foot: Sequence[Line]) -> None:
        """Print ``above``, and below it ``foot`` with each line cut to the terminal's width."""
        output = self._output
        width = max(output.width - 1, 1)
        lines = [cropped(Line(((" " * each.indent, ""), *each.spans)), width) for each in map(safe, foot)]
        text = self._erased() + output._printed(above) + "\n".join(map(output._painted, lines))
        self._widths = [cell_width(each.text) for each in lines]
        # Draw at once if the terminal can: see "synchronized output".
        output.stdout.write(f"\x1b[?2026h{text}\x1b[?2026l")
        output.stdout.flush()

    def close(self) -> None:
        self._output.stdout.write(self._erased())
        self._output.stdout.flush()
        self._widths = []

    def _erased(self) -> str:
        """Move to the start of the foot, and clear from there; a terminal that became narrower has
        wrapped its lines."""
        if not self._widths:
            return "\r\x1b[J"
        width = self._output.width if self._output.reflows else sys.maxsize
        rows = sum(max(-(-each // width), 1) for each in self._widths) - 1
        return "\r" + (f"\x1b[{rows}A" if rows else "") + "\x1b[J"


class LiveView:
    """The view of `Output.live`: ``update`` replaces its lines."""

    def __init__(self, live: Any) -> None:
        self._live = live

    def update(self, lines: Iterable[Line]) -> None:
        self._live.update(to_text(lines), refresh=True)


def standard(environ: Mapping[str, str], *, json: bool) -> Output:
    """Return the output on the process's streams. A character that the terminal's encoding lacks
    becomes ?; JSON is UTF-8 in every locale."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    if json and isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")
    return Output(sys.stdout, sys.stderr, environ, json=json)
