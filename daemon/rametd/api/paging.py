"""Pages of lists: sizes, and tokens that say where the next one begins."""

import base64
import json
from collections.abc import Callable
from typing import Any, TypeVar

from rametd.domain.errors import BadPageTokenError

DEFAULT_SIZE = 100
LARGEST_SIZE = 1000
LARGEST_OFFSET = (1 << 63) - 1

Position = TypeVar("Position")


def size_of(page_size: int) -> int:
    return min(page_size or DEFAULT_SIZE, LARGEST_SIZE)


def token_of(kind: str, position: Any) -> str:
    """An opaque token for a position, which JSON can hold, in a list of one kind."""
    return base64.urlsafe_b64encode(json.dumps([kind, position]).encode()).decode()


def position_of(kind: str, token: str, read: Callable[[Any], Position]) -> Position | None:
    """The position in a token, None for the first page; raises `BadPageTokenError` for anything that `token_of` did not make.

    ``read`` takes the position as JSON had it; what it raises for one of another shape becomes that error too.
    """
    if not token:
        return None
    try:
        found, position = json.loads(base64.urlsafe_b64decode(token.encode()))
        if found == kind:
            return read(position)
    except (ValueError, TypeError, LookupError, ArithmeticError, RecursionError):
        pass  # somebody made it up
    raise BadPageTokenError("the page token is not one of this list's", hint="start again from the first page")


def offset(position: Any) -> int:
    """A position that is a number of rows or of an event."""
    if type(position) is not int or not 0 <= position <= LARGEST_OFFSET:
        raise ValueError("no offset")
    return position


def time_and_id(position: Any) -> tuple[float, str]:
    """A position in a list that is ordered by time."""
    time, identity = position
    if type(time) not in {int, float} or type(identity) is not str:
        raise ValueError("no time and id")
    return float(time), identity
