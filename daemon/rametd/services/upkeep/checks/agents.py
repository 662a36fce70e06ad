"""Check the processes of agents and keepers against the rows."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

from rametd.domain.models import AgentState, Repo, Session
from rametd.domain.states import BUSY_STATES
from rametd.keeper.executor import Handle, Liveness
from rametd.keeper.place import Place
from rametd.services.agents import endings
from rametd.services.agents.supervisor import Supervisor
from rametd.services.core import Core
from rametd.services.upkeep.finding import Finding, shell
from rametd.services.upkeep.rows import known_ids
from rametd.store import Unit


async def agents(
    core: Core, supervisor: Supervisor, repo: Repo | None, checked: Counter[str]
) -> AsyncIterator[Finding]:
    """Check agents of one repository, or of all."""
    alive = await core.store.read(
        lambda reader: [(agent, reader.sessions.get(agent.session_id)) for agent in reader.agents.alive()]
    )
    with_agent = {session.id for _, session in alive}
    for agent, session in alive:
        if repo is not None and session.repo_id != repo.id:
            continue
        checked["agents"] += 1
        if agent.state != AgentState.LIVE:
            continue
        recovered = await core.executor.recover(Handle(agent.handle))
        if recovered.liveness != Liveness.ALIVE and session.id not in core.live:
            generation = agent.generation

            async def lose(session: Session = session, generation: int = generation) -> None:
                await core.store.write(lambda unit: _lose(core, unit, session, generation))
                await supervisor.after_end(session.id)

            message = "its agent is recorded as alive, but is not"
            yield Finding("error", "agent-gone", session.name, session.id, message, "doctor --fix marks it lost", lose)
    busy = await core.store.read(lambda reader: reader.sessions.list(states=BUSY_STATES))
    for session in busy:
        if session.id not in with_agent and (repo is None or session.repo_id == repo.id):
            message = f"it is {session.state} without an agent"
            stop, resume = shell("rametctl", "stop", session.name), shell("rametctl", "resume", session.name)
            yield Finding(
                "error", "agent-missing", session.name, session.id, message, f"start it again: {stop} && {resume}"
            )


def _lose(core: Core, unit: Unit, session: Session, generation: int) -> None:
    endings.record_end(
        unit,
        core.kind(session.agent),
        session.id,
        generation,
        record=None,
        stderr_tail="",
        unterminated=b"",
        max_resumes=core.config.agents.max_resumes,
    )


async def keepers(core: Core, checked: Counter[str]) -> AsyncIterator[Finding]:
    """Find directories of keepers without a session."""
    handles = await asyncio.to_thread(core.executor.discover)
    known = await core.store.read(lambda reader: known_ids(reader, trash=False))
    for handle in handles:
        place = Place.from_handle(handle)
        checked["keepers"] += 1
        if place.session in known:
            continue
        state = (await core.executor.recover(handle)).liveness
        gone = state in {Liveness.EXITED, Liveness.UNKNOWN}

        async def destroy(handle: Handle = handle) -> None:
            await core.executor.destroy(handle)

        message = f"no session has the agent of {place.path}" + ("" if gone else ", and it is alive")
        advice = "doctor --fix removes the directory" if gone else "look at it with ps, and end it by hand"
        severity = "info" if gone else "error"
        yield Finding(severity, "agent-unknown", place.name, place.session, message, advice, destroy if gone else None)
