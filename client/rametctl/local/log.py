"""The daemon's log file: its end, new lines over rotation, and lines formatted for people."""

import json
import os
import time
from collections import deque
from collections.abc import Generator
from datetime import datetime
from pathlib import Path

from rametctl.console.lines import Line, line

POLL = 0.2
"""Seconds between two reads of the file."""
_LEVELS = {"debug": "dim", "info": "green", "warning": "yellow", "error": "red", "critical": "bold red"}
_SPOKEN_FOR = frozenset({"timestamp", "level", "event", "exception"})


def tail(path: Path, lines: int) -> list[str]:
    """Return the last ``lines`` lines."""
    with path.open(encoding="utf-8", errors="replace") as file:
        return [text.rstrip("\n") for text in deque(file, maxlen=lines)]


def follow_file(path: Path, lines: int) -> Generator[str, None, None]:
    """Yield the last ``lines`` lines, then complete new lines, without an end.

    Reads a rotated file to its end first, then the new one from its beginning.
    """
    file = path.open(encoding="utf-8", errors="replace")
    try:
        yield from (text.rstrip("\n") for text in deque(file, maxlen=lines))
        rest = ""
        while True:
            if chunk := file.read():
                *whole, rest = (rest + chunk).split("\n")
                yield from whole
            elif _is_other(path, file.fileno()):
                file.close()
                file = path.open(encoding="utf-8", errors="replace")
                rest = ""
            else:
                time.sleep(POLL)
    finally:
        file.close()


def _is_other(path: Path, descriptor: int) -> bool:
    """Return whether the name now belongs to another file; False during a rotation, when there is
    none."""
    try:
        return not os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def log_line(text: str) -> Line:
    """Return ``TIME LEVEL event key=value …``; a line that is no JSON object stays unchanged."""
    try:
        data = json.loads(text)
    except ValueError:
        data = None
    if not isinstance(data, dict):
        return line(text)
    level = str(data.get("level", ""))
    pairs = " ".join(f"{key}={_value(value)}" for key, value in data.items() if key not in _SPOKEN_FOR)
    exception = str(data.get("exception", "")).rstrip()
    return line(
        (_local(str(data.get("timestamp", ""))), "dim"), "  ", (f"{level:<8}", _LEVELS.get(level, "")), " ",
        str(data.get("event", "")), (f"  {pairs}" if pairs else "", "dim"),
        (f"\n{exception}" if exception else "", "red"),
    )  # fmt: skip


def _value(value: object) -> str:
    return value if isinstance(value, str) and " " not in value else json.dumps(value, ensure_ascii=False)


def _local(timestamp: str) -> str:
    """Return a time in the local time zone; other text stays unchanged."""
    try:
        return datetime.fromisoformat(timestamp).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except ValueError:
        return timestamp
