"""Lines of the daemon's log, formatted for people."""

import json
from datetime import datetime

from rametctl.lines import Line, line

_LEVELS = {"debug": "dim", "info": "green", "warning": "yellow", "error": "red", "critical": "bold red"}
_SPOKEN_FOR = frozenset({"timestamp", "level", "event", "exception"})


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
