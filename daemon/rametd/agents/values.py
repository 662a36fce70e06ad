"""Values in the lines of agents. One that is missing, or of another type than expected, is read as absent."""

import json
import re
from collections.abc import Mapping
from typing import Any

HALF_CHARACTER = re.compile(r"\\u[dD][89a-fA-F]")
LARGEST = 1 << 53
"""Up to here JSON's numbers are whole, and protobuf and SQLite hold them."""

Message = dict[str, Any]


def parse(line: bytes) -> Message | None:
    """The message in a line, or None.

    A text that was cut in the middle of an emoji ends in half of a surrogate pair, which is JSON but no Unicode: neither protobuf nor SQLite
    takes it. It becomes a question mark.
    """
    words = line.decode("utf-8", "replace")
    try:
        value = json.loads(words)
        if HALF_CHARACTER.search(words):
            value = json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
    except ValueError:
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
    """A number that fits into 32 bits."""
    return int(min(number(source, key), (1 << 32) - 1))


def table(source: Mapping[str, Any], key: str) -> Message:
    value = source.get(key)
    return value if isinstance(value, dict) else {}


def rows(source: Mapping[str, Any], key: str) -> list[Any]:
    value = source.get(key)
    return value if isinstance(value, list) else []
