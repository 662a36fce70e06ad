"""Following the daemon's log file."""

from pathlib import Path

from rametctl.local.log import follow_file, tail


def test_the_tail_is_the_last_lines(tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_text("a\nb\nc\n")
    assert tail(file, 2) == ["b", "c"]


def test_following_goes_over_a_rotation_without_losing_a_line(tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_text("old\n")
    lines = follow_file(file, 10)
    assert next(lines) == "old"
    with file.open("a") as writer:
        writer.write("last of the old\nhalf")
    assert next(lines) == "last of the old"
    with file.open("a") as writer:
        writer.write(" a line\n")
    file.rename(tmp_path / "log.1")
    file.write_text("first of the new\n")
    assert [next(lines), next(lines)] == ["half a line", "first of the new"]
    lines.close()
