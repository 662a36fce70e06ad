"""Context of the current call: the caller's principal, directory and environment."""

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
"""Id of the repository around the caller's directory. If sessions of several repositories have a
name, it means the one there."""

environment: ContextVar[Mapping[str, str]] = ContextVar("environment", default=MappingProxyType({}))
"""Variables in the metadata of the owner's call (`ramet.environment.METADATA`); empty for other
callers."""


async def freshen(core: Core, *session_ids: str) -> list[str]:
    """Update sessions with the variables of the current call; return warnings. For calls in
    `ramet.environment.CARRIED_BY`."""
    caller = environment.get()
    if not caller:
        return []
    return [warning for each in session_ids for warning in await refresh(core, each, caller, principal.get())]


async def named_session(core: Core, name: str) -> Session:
    """Find the session that the caller names. Raise `SessionNotFoundError`, `AmbiguousError`."""
    near = here.get()  # the store's threads do not see the context
    return await core.store.read(lambda reader: find_session(reader, name, repo_id=near))
