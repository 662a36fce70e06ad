"""Who calls, for the length of a call."""

from contextvars import ContextVar

from rametd.domain.models import OWNER

principal: ContextVar[str] = ContextVar("principal", default=OWNER)
"""``owner``, ``session:<id>``, or ``command``."""
