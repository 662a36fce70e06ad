"""Screens of a run as one SVG, in the colours that the commands themselves chose."""

import io
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from ramet_demo.teller import Shown

COLUMNS = 100


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
