"""Ending the agent of a session, with all that it ever started."""

import asyncio

import structlog

from rametd.domain.errors import RametError
from rametd.domain.models import AgentState, Session
from rametd.keeper.executor import Handle
from rametd.keeper.place import Place
from rametd.services.agents.supervisor import Supervisor
from rametd.services.core import Core
from rametd.services.persistence import write_for_sure
from rametd.store import Unit

log = structlog.get_logger()

END_GRACE_S = 1.0


async def end_agent(core: Core, supervisor: Supervisor, session: Session, why: str) -> None:
    """End its process. Without a runner there may be one too: recovery completes what holds a session before it takes up its agent, and a
    process may run whose handle a killed daemon had not stored yet."""
    await supervisor.settled(session.id)
    runner = core.live.get(session.id)
    if runner is not None:
        await runner.end(why, END_GRACE_S)
        return

    def note(unit: Unit) -> None:
        # It is taken up after that, for what it has said: its end is then no loss, and until then nobody gives it a prompt.
        agent = unit.agents.latest(session.id)
        if agent is not None and agent.state in {AgentState.STARTING, AgentState.LIVE}:
            unit.agents.update(session.id, agent.generation, stop_intent=why)

    await write_for_sure(core.store, note)
    for handle in await handles_of(core, session.id):
        await core.executor.end(handle, END_GRACE_S, epoch=core.fence)


async def handles_of(core: Core, session_id: str) -> list[Handle]:
    """All processes that the session ever had and that left something, on record or not."""
    found = await asyncio.to_thread(core.executor.discover)
    return [handle for handle in found if Place.from_handle(handle).session == session_id]


async def destroy_processes(core: Core, session_id: str) -> None:
    for handle in await handles_of(core, session_id):
        try:
            await core.executor.destroy(handle)
        except RametError as error:
            log.warning("agent directory stays", session=session_id, error=error.message)
