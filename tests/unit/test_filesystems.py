"""File systems that report every change."""

import sys
from pathlib import Path

import pytest
from rametd.platform.files import missing_events

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere events are another matter")


def test_a_file_system_without_reliable_events_is_named() -> None:
    assert missing_events("/proc") == "/proc is on a file system that may not report every change (type 0x9fa0)"


def test_the_disk_of_this_machine_reports_every_change(tmp_path: Path) -> None:
    assert missing_events(str(tmp_path)) == ""


def test_a_place_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        missing_events(str(tmp_path / "nowhere"))
