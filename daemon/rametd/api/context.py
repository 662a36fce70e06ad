"""Who calls and from which environment, for the length of a call."""

from collections.abc import Mapping
from contextvars import ContextVar
from types import MappingProxyType

from rametd.domain.models import OWNER
from rametd.services.core import Core
from rametd.services.environments import refresh

principal: ContextVar[str] = ContextVar("principal", default=OWNER)
"""``owner``, ``session:<id>``, or ``command``."""

environment: ContextVar[Mapping[str, str]] = ContextVar("environment", default=MappingProxyType({}))
"""The variables that the owner's call carries (`ramet.environment.METADATA`); empty for any other caller."""


async def freshen(core: Core, *session_ids: str) -> list[str]:
    """Give sessions the fresh variables of the call that is served; returns warnings. For calls in `ramet.environment.CARRIED_BY`."""
    caller = environment.get()
    if not caller:
        return []
    return [warning for each in session_ids for warning in await refresh(core, each, caller, principal.get())]
