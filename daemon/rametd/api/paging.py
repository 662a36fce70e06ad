"""Pages of lists: sizes, and tokens for the position of the next page."""

import base64
import json
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from rametd.domain.errors import BadPageTokenError

DEFAULT_SIZE = 100
LARGEST_SIZE = 1000
LARGEST_OFFSET = (1 << 63) - 1

Position = TypeVar("Position")
Row = TypeVar("Row")


class Paged(Protocol):
    """A request for a page of a list."""

    page_size: int
    page_token: str


def size_of(page_size: int) -> int:
    return min(page_size or DEFAULT_SIZE, LARGEST_SIZE)


def token_of(kind: str, position: Any) -> str:
    """Return an opaque token for a position, a JSON value, in a list of one kind."""
    return base64.urlsafe_b64encode(json.dumps([kind, position]).encode()).decode()


def position_of(kind: str, token: str, read: Callable[[Any], Position]) -> Position | None:
    """Return the position in a token, None for the first page. Raise `BadPageTokenError` for a
    token not from `token_of`.

    ``read`` converts the position from JSON; its errors for another shape become that error too.
    """
    if not token:
        return None
    try:
        found, position = json.loads(base64.urlsafe_b64decode(token.encode()))
        if found == kind:
            return read(position)
    except (ValueError, TypeError, LookupError, ArithmeticError, RecursionError):
        pass  # a forged token
    raise BadPageTokenError("the page token does not belong to this list", hint="start again from the first page")


def offset(position: Any) -> int:
    """Read a position that is a number of rows or of an event."""
    if type(position) is not int or not 0 <= position <= LARGEST_OFFSET:
        raise ValueError("no offset")
    return position


def time_and_id(position: Any) -> tuple[float, str]:
    """Read a position in a list ordered by time."""
    time, identity = position
    if type(time) not in {int, float} or type(identity) is not str:
        raise ValueError("no time and id")
    return float(time), identity


def page_of(kind: str, request: Paged, rows: Sequence[Row]) -> tuple[list[Row], str]:
    """Return the requested page of a complete list, and the token of the next page, "" after the
    last one."""
    start = position_of(kind, request.page_token, offset) or 0
    end = start + size_of(request.page_size)
    return list(rows[start:end]), token_of(kind, end) if end < len(rows) else ""
