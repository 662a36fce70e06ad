"""Read values in agents' lines. A value of an unexpected type counts as absent."""

import json
import re
from collections.abc import Mapping
from typing import Any

HALF_CHARACTER = re.compile(r"\\u[dD][89a-fA-F]")
LARGEST = 1 << 53
"""Largest integer that JSON, protobuf and SQLite all represent exactly."""
REASON_LIMIT = 4096

Message = dict[str, Any]


def parse(line: bytes) -> Message | None:
    """Return the message in a line, or None.

    A text cut within an emoji ends in half of a surrogate pair. That is JSON but not Unicode, and
    protobuf and SQLite refuse it; it becomes a question mark.
    """
    words = line.decode("utf-8", "replace")
    try:
        value = json.loads(words)
        if HALF_CHARACTER.search(words):
            value = json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def text(source: Mapping[str, Any], key: str) -> str:
    value = source.get(key)
    return value if isinstance(value, str) else ""


def number(source: Mapping[str, Any], key: str) -> float:
    value = source.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:  # not NaN either
        return 0
    return min(value, LARGEST)


def count(source: Mapping[str, Any], key: str) -> int:
    """Return a number that fits into 32 bits."""
    return int(min(number(source, key), (1 << 32) - 1))


def table(source: Mapping[str, Any], key: str) -> Message:
    value = source.get(key)
    return value if isinstance(value, dict) else {}


def rows(source: Mapping[str, Any], key: str) -> list[Any]:
    value = source.get(key)
    return value if isinstance(value, list) else []


def reason_of(error: Mapping[str, Any]) -> str:
    """Return why a JSON-RPC request was refused: the error's message and details; the message alone
    is often "Internal error"."""
    message, data = text(error, "message"), error.get("data")
    known = data if isinstance(data, dict) else {"details": data}
    details = next((words for name in ("details", "message", "error") if (words := text(known, name))), "")
    return f"{message}: {details}"[:REASON_LIMIT] if details and details not in message else message
