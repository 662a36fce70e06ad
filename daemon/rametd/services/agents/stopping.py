"""End a session's agent with every process that it ever started."""

import asyncio

import structlog

from rametd.domain.errors import RametError
from rametd.domain.models import AgentState, Session
from rametd.keeper.executor import Handle
from rametd.keeper.place import Place
from rametd.services.agents.supervisor import Supervisor
from rametd.services.core import Core
from rametd.store import Unit

log = structlog.get_logger()

END_GRACE_S = 1.0


async def end_agent(core: Core, supervisor: Supervisor, session: Session, why: str) -> None:
    """End its process, also without a runner: recovery finishes a session's operation before it
    reattaches to the agent, and a killed daemon may have started a process without storing its
    handle."""
    await supervisor.settled(session.id)
    runner = core.live.get(session.id)
    if runner is not None:
        await runner.end(why, END_GRACE_S)
        await supervisor.quiet(session.id)
        return

    def note(unit: Unit) -> None:
        # Recovery reattaches later to read its output. The intent marks its end as requested, and
        # holds prompts back until then.
        agent = unit.agents.latest(session.id)
        if agent is not None and agent.state in {AgentState.STARTING, AgentState.LIVE}:
            unit.agents.update(session.id, agent.generation, stop_intent=why)

    await core.store.write_for_sure(note)
    for handle in await handles_of(core, session.id):
        await core.executor.end(handle, END_GRACE_S, epoch=core.fence)
    await supervisor.quiet(session.id)


async def handles_of(core: Core, session_id: str) -> list[Handle]:
    """Return the handles of all processes of the session that left a directory, recorded or not."""
    found = await asyncio.to_thread(core.executor.discover)
    return [handle for handle in found if Place.from_handle(handle).session == session_id]


async def destroy_processes(core: Core, session_id: str) -> None:
    for handle in await handles_of(core, session_id):
        try:
            await core.executor.destroy(handle)
        except RametError as error:
            log.warning("agent directory stays", session=session_id, error=error.message)
