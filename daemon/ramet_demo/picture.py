"""Pictures of a run: screens of commands as one SVG, the dashboard, and web pages."""

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
BROWSER = "/usr/bin/chromium"
SIZES = {"wide": (1440, 620), "phone": (390, 844)}
"""Width and height of web pages in pixels."""
DELAY_S = 4
"""Seconds until the dashboard has read everything that it shows."""


def draw(screens: Sequence[Shown], path: Path) -> None:
    """Write ``screens`` as one SVG, one below the other, each under its command."""
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
    """Write an SVG of the dashboard, which Textual draws without a terminal."""
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


def photograph_pages(environ: Mapping[str, str], cwd: Path, into: Path, pages: Mapping[str, tuple[str, str]]) -> None:
    """Write PNGs of web pages into a directory. ``pages`` has by picture's name the page's path and
    size, one of `SIZES`."""
    from playwright.sync_api import sync_playwright

    command = argv_of("rametctl web --port 0")
    with (
        subprocess.Popen(
            command, cwd=cwd, env=dict(environ), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ) as server,
        sync_playwright() as playwright,
    ):
        assert server.stdout is not None
        link = server.stdout.readline().decode().strip()
        base = link.partition("/login")[0]
        browser = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        page = browser.new_page(base_url=base, reduced_motion="reduce", color_scheme="light")
        page.goto(link)
        page.wait_for_url(f"{base}/")
        for name, (path, size) in pages.items():
            width, height = SIZES[size]
            page.set_viewport_size({"width": width, "height": height})
            page.goto(path, wait_until="load")
            page.wait_for_timeout(1000)  # until the page has fetched counts and diffs
            page.screenshot(path=into / f"{name}.png")
        browser.close()
        server.terminate()
