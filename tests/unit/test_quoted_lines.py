"""A comment is about the line that git and editors count."""

from pathlib import Path

import pytest
from rametd.services.worktrees.comments import quoted, read_lines


@pytest.mark.parametrize("odd", ["\x0c", "\x0b", "\x1c", "\x85", "\u2028", "\r"])
def test_only_a_line_feed_ends_a_line(tmp_path: Path, odd: str) -> None:
    (tmp_path / "file.py").write_bytes(f"one\n{odd}two\nthree\n".encode())
    lines = read_lines(tmp_path, "file.py")
    assert lines == ["one", f"{odd}two", "three"]
    assert quoted(lines, 3).splitlines()[-1] == ">     3 three"


def test_the_ends_of_lines_are_no_part_of_them(tmp_path: Path) -> None:
    for text, lines in {"": [], "\n": [""], "a\r\nb\r\n": ["a", "b"], "a\nb": ["a", "b"]}.items():
        (tmp_path / "file").write_bytes(text.encode())
        assert read_lines(tmp_path, "file") == lines
