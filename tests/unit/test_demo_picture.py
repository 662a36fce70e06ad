"""The picture in the README is drawn from a terminal's screen."""

from pathlib import Path

from ramet_demo.picture import draw
from ramet_demo.teller import Shown


def test_every_line_of_a_screen_is_drawn(tmp_path: Path) -> None:
    path = tmp_path / "screens.svg"
    draw([Shown("rametctl ls", "NAME\r\n\x1b[1mfeature\x1b[0m\r\ntests\r\n")], path)
    drawn = path.read_text()
    assert all(word in drawn for word in ("NAME", "feature", "tests"))
