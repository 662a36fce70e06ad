"""A comment is about the line that git and editors count."""

from pathlib import Path

import pytest
from rametd.services.worktrees.comments import quoted, read_lines


@pytest.mark.parametrize("odd", ["\x0c", "\x0b", "\x1c", "\x85", "\u2028", "\r"])
def test_only_a_line_feed_ends_a_line(tmp_path: Path, odd: str) -> None:
    (tmp_path / "file.py").write_bytes(f"one\n{odd}two\nthree\n".encode())
    lines = read_lines(tmp_path, "file.py")
    assert lines == ["one", f"{odd}two", "three"]
    assert quoted(lines, 3, 3).splitlines()[-1] == ">     3 three"


@pytest.mark.parametrize(
    ("line", "end_line", "marked", "shown"),
    [(0, 0, [], []), (1, 1, [1], [1, 2, 3]), (5, 7, [5, 6, 7], [3, 4, 5, 6, 7, 8, 9]), (99, 100, [99, 100], [97, 98, 99, 100]),
     (10, 90, [*range(10, 51)], [*range(8, 51)])],
)  # fmt: skip
def test_a_range_is_quoted_with_the_lines_around_it(
    line: int, end_line: int, marked: list[int], shown: list[int]
) -> None:
    quote = quoted([f"text {number}" for number in range(1, 101)], line, end_line).splitlines()
    assert [int(each[2:7]) for each in quote] == shown
    assert [int(each[2:7]) for each in quote if each.startswith(">")] == marked


def test_the_ends_of_lines_are_no_part_of_them(tmp_path: Path) -> None:
    for text, lines in {"": [], "\n": [""], "a\r\nb\r\n": ["a", "b"], "a\nb": ["a", "b"]}.items():
        (tmp_path / "file").write_bytes(text.encode())
        assert read_lines(tmp_path, "file") == lines
