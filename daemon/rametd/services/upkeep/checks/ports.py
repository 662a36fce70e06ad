"""Check: ports of two sessions, and ports on which another program listens."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

from rametd.domain.models import Session
from rametd.platform.listeners import listeners
from rametd.services.core import Core
from rametd.services.upkeep.finding import Finding, shell


async def ports(core: Core, checked: Counter[str]) -> AsyncIterator[Finding]:
    sessions = await core.store.read(lambda reader: reader.sessions.list(include_archived=True))
    blocks = sorted(
        ((each.port_base, each.port_count, each) for each in sessions if each.port_count), key=lambda block: block[:2]
    )
    last: tuple[int, Session] | None = None
    for base, count, session in blocks:
        checked["ports"] += count
        if last is not None and base < last[0]:
            message = f"{last[1].name} has its ports from {base} on too"
            advice = f"give it other ports: {shell('rametctl', 'rm', session.name, '--force')} && {shell('rametctl', 'trash', 'restore', session.id)}"
            yield Finding("error", "ports-shared", session.name, session.id, message, advice)
        last = (base + count, session)
    found = await asyncio.to_thread(
        listeners, frozenset(port for base, count, _ in blocks for port in range(base, base + count))
    )
    at_work = await core.store.read(
        lambda reader: (
            {agent.session_id for agent in reader.agents.alive()}
            | {command.session_id for command in reader.commands.living()}
        )
    )
    for base, count, session in blocks:
        for port in range(base, base + count):
            listener = found.get(port)
            if listener is not None and session.id not in at_work:
                who = f"{listener.program} (pid {listener.pid})" if listener.pid else "another user's program"
                message = f"{who} listens on its port {port}, but the session runs nothing"
                advice = "end that program, or the session's server cannot use the port"
                yield Finding("warning", "port-foreign", session.name, session.id, message, advice)
