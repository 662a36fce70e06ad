"""Pages of lists: sizes, and tokens that say where the next one begins."""

import base64
import json
from typing import Any

from rametd.domain.errors import BadPageTokenError

DEFAULT_SIZE = 100
LARGEST_SIZE = 1000


def size_of(page_size: int) -> int:
    return min(page_size or DEFAULT_SIZE, LARGEST_SIZE)


def token_of(kind: str, position: Any) -> str:
    """An opaque token for a position, which JSON can hold, in a list of one kind."""
    return base64.urlsafe_b64encode(json.dumps([kind, position]).encode()).decode()


def position_of(kind: str, token: str) -> Any:
    """The position in a token, None for the first page; raises `BadPageTokenError` for anything that `token_of` did not make."""
    if not token:
        return None
    try:
        found, position = json.loads(base64.urlsafe_b64decode(token.encode()))
    except (ValueError, TypeError):
        found, position = "", None
    if found != kind:
        raise BadPageTokenError("the page token is not one of this list's", hint="start again from the first page")
    return position
