"""Format amounts and times, and read JSON texts."""

import json
import re
import time as clock
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp
from ramet import words
from ramet.v1.session_pb2 import Session

_BOLD = re.compile(r"(?<![\w/*])\*\*(?=\S)(.+?)(?<=\S)\*\*(?![\w/*])")


def unbold(text: str) -> str:
    """Remove the marks of Markdown's bold text, but not the stars of a pattern such as
    src/**/*.py."""
    return _BOLD.sub(r"\1", text)


def cost(session: "Session") -> str:
    """Format a session's cost as `money`; "unknown" if its agent does not report it."""
    return money(session.cost_usd) if session.HasField("cost_usd") else "unknown"


def money(dollars: float) -> str:
    """Format dollars: $0.05, $12.30, $1234; "-" for 0; less than a cent is not 0."""
    if dollars <= 0:
        return "-"
    if dollars < 0.01:
        return "<$0.01"
    return f"${dollars:.2f}" if dollars < 1000 else f"${dollars:.0f}"


def limit(dollars: float) -> str:
    """Format a budget: as `money`, but exactly where it holds parts of a cent."""
    return money(dollars) if round(dollars, 2) == dollars else f"${dollars:g}"


def span(seconds: float) -> str:
    """Format a duration in its largest unit: 12s, 3m, 5h, 2d."""
    seconds = max(seconds, 0)
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{int(seconds // size)}{unit}"
    return f"{int(seconds)}s"


def duration(seconds: float) -> str:
    """Format a duration in two units: 0.8s, 12s, 3m 20s, 2h 5m."""
    if seconds < 10:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes == 0:
        return f"{rest}s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h {minutes}m" if hours else f"{minutes}m {rest}s"


def seconds_of(time: "Timestamp") -> float:
    return time.seconds + time.nanos / 1e9


def age(time: "Timestamp", now: float) -> str:
    """Format how long ago a time is, or "-" if unknown."""
    return span(now - seconds_of(time)) if time.seconds else "-"


def local_time(time: "Timestamp") -> str:
    """Format a time in the local time zone: 2026-11-27 21:05:09."""
    return clock.strftime("%Y-%m-%d %H:%M:%S", clock.localtime(time.seconds)) if time.seconds else "-"


def parsed(text: str) -> Any:
    """Return the value of a JSON text; None if it is empty or no JSON."""
    try:
        return json.loads(text) if text else None
    except (ValueError, RecursionError):
        return None


def shown_value(text: str, unit: str) -> str:
    """Format a value with its unit: ``10m``, ``2.0 GiB``; text that is no number stays
    unchanged."""
    if not unit or not text.replace(".", "", 1).isdigit():
        return text
    number = float(text)
    if unit == "seconds":
        return span(number) if number % 60 == 0 or number < 60 else f"{number:g}s"
    if unit == "bytes":
        return words.size(int(number))
    return f"{text} {unit.removesuffix('s') if number == 1 else unit}"
