"""The caller of the present call: who it is, where it stands, and its environment."""

from collections.abc import Mapping
from contextvars import ContextVar
from types import MappingProxyType

from rametd.domain.models import OWNER, Session
from rametd.services.core import Core
from rametd.services.environments import refresh
from rametd.services.lookup import find_session

principal: ContextVar[str] = ContextVar("principal", default=OWNER)
"""``owner``, ``session:<id>``, or ``command``."""

here: ContextVar[str | None] = ContextVar("here", default=None)
"""The id of the repository around the caller's directory: its session is meant where a name fits several repositories."""

environment: ContextVar[Mapping[str, str]] = ContextVar("environment", default=MappingProxyType({}))
"""The variables that the owner's call carries (`ramet.environment.METADATA`); empty for any other caller."""


async def freshen(core: Core, *session_ids: str) -> list[str]:
    """Give sessions the fresh variables of the call that is served; returns warnings. For calls in `ramet.environment.CARRIED_BY`."""
    caller = environment.get()
    if not caller:
        return []
    return [warning for each in session_ids for warning in await refresh(core, each, caller, principal.get())]


async def named_session(core: Core, name: str) -> Session:
    """Find the session that the caller names. Raises `SessionNotFoundError`, `AmbiguousError`."""
    near = here.get()  # not visible in the store's threads
    return await core.store.read(lambda reader: find_session(reader, name, repo_id=near))
