"""Screens of a run as one SVG, in the colours that the commands themselves chose."""

import fcntl
import io
import os
import pty
import struct
import subprocess
import termios
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from ramet_demo.teller import Shown, argv_of, read

COLUMNS = 100
DASHBOARD = (120, 30)
"""Columns and rows of the dashboard's picture."""
DELAY_S = 4
"""For the dashboard to have read all that it shows."""


def draw(screens: Sequence[Shown], path: Path) -> None:
    """Write ``screens`` one below the other, each under its command."""
    console = Console(
        record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system="truecolor", highlight=False
    )
    for index, screen in enumerate(screens):
        if index:
            console.print()
        console.print(Text.assemble(("$ ", "green"), (screen.command, "cyan")))
        # A terminal ends lines with CR LF, and Rich takes a CR for the beginning of the same line.
        console.print(Text.from_ansi(screen.output.replace("\r\n", "\n").rstrip()))
    path.write_text(console.export_svg(title="ramet", unique_id="ramet"))


def photograph(environ: Mapping[str, str], cwd: Path, path: Path) -> None:
    """Write an SVG of the dashboard as it stands on a terminal: Textual draws it by itself and ends."""
    wanted = {
        "TERM": "xterm-256color",
        "TEXTUAL_SCREENSHOT": str(DELAY_S),
        "TEXTUAL_SCREENSHOT_LOCATION": os.fspath(path.parent),
        "TEXTUAL_SCREENSHOT_FILENAME": path.name,
    }
    reader, writer = pty.openpty()
    columns, rows = DASHBOARD
    fcntl.ioctl(writer, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    command = argv_of("rametctl top")
    with subprocess.Popen(command, cwd=cwd, env={**environ, **wanted}, stdin=writer, stdout=writer, stderr=writer):
        os.close(writer)
        while read(reader):
            pass
        os.close(reader)
