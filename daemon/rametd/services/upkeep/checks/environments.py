"""Sockets in the environments of sessions that no longer exist."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator

from rametd.domain.models import Repo, Session
from rametd.services.core import Core
from rametd.services.environments import gone_sockets, variables_of
from rametd.services.upkeep.finding import Finding, shell
from rametd.services.words import listed


async def environments(core: Core, repo: Repo | None, checked: Counter[str]) -> AsyncIterator[Finding]:
    """Find sockets by path: after a login has ended it is the same one in all sessions."""
    repo_id = repo.id if repo is not None else None
    sessions = await core.store.read(lambda reader: reader.sessions.list(repo_id=repo_id))
    checked["environments"] += len(sessions)
    gone: defaultdict[tuple[str, str], list[Session]] = defaultdict(list)
    for session in sessions:
        variables = await variables_of(core, session.id)
        for socket in await asyncio.to_thread(gone_sockets, variables):
            gone[socket].append(session)
    for (name, path), of in gone.items():
        message = f"{path}, the {name} of {listed([session.name for session in of])}, no longer exists"
        command = shell("rametctl", "set", of[0].name, "--env", name)
        advice = f"the next command for a session from a shell that has a living one brings it, as: {command}"
        yield Finding("info", "environment-socket-gone", name, of[0].id if len(of) == 1 else "", message, advice)
