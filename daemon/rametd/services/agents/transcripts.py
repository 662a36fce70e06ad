"""Copies of agents' transcripts. Agents' programs delete old transcripts, and cannot resume a
conversation without its own.

The daemon renews a copy when a turn or a process ends, and restores a missing transcript before a
process resumes its conversation. It deletes the copies with their session.
"""

import asyncio
import shutil
from pathlib import Path

import structlog

from rametd.domain.checkpoints import ConversationCut
from rametd.domain.models import Agent, Session
from rametd.services.agents.launching import environment_of
from rametd.services.core import Core
from rametd.store import Reader

log = structlog.get_logger()


class Transcripts:
    def __init__(self, core: Core) -> None:
        self._core = core
        self._root = core.state_dir / "conversations"

    async def renew(self, session: Session) -> None:
        """Update the copy of the conversation."""
        agent = await self._core.store.read(lambda reader: reader.agents.latest(session.id))
        if agent is not None and agent.conversation_home and session.conversation_begun:
            await self._copy(session, session.conversation_id, Path(agent.conversation_home))

    async def _copy(self, session: Session, conversation_id: str, home: Path) -> None:
        kind, target = self._core.kind(session.agent), self._root / session.id
        try:
            await asyncio.to_thread(kind.copy_conversation, conversation_id, home, target, overwrite=True)
        except OSError as error:
            log.warning("conversation not copied", session=session.id, error=str(error))

    async def provide(self, session: Session, cut: ConversationCut | None, home: Path) -> bool:
        """Restore the transcript for the next process where its program looks for it; return False
        if it is lost."""
        if session.conversation_begun:
            before = await self._core.store.read(lambda reader: last_home(reader, session))
            if before is not None and before != home:  # a killed daemon may not have renewed the copy
                await self._copy(session, session.conversation_id, before)
            source = self._root / session.id
            return await self._put_back(session, session.conversation_id, source, home)
        if cut is not None and not session.conversation_lost:
            source = await asyncio.to_thread(self._holder, session, cut.source_id)
            return await self._put_back(session, cut.source_id, source, home)
        return True

    async def _put_back(self, session: Session, conversation_id: str, source: Path, home: Path) -> bool:
        kind = self._core.kind(session.agent)
        await asyncio.to_thread(kind.copy_conversation, conversation_id, source, home, overwrite=False)
        return await asyncio.to_thread(kind.has_conversation, conversation_id, home)

    def _holder(self, session: Session, conversation_id: str) -> Path:
        """Return the directory with the copy of a conversation, which may be another session's;
        blocks."""
        kind = self._core.kind(session.agent)
        near = [self._root / each for each in (session.id, session.forked_from) if each]
        others = self._root.iterdir() if self._root.is_dir() else ()
        return next((each for each in (*near, *others) if kind.has_conversation(conversation_id, each)), near[0])

    async def warning(self, session: Session) -> str:
        """Return the warning for a session whose conversation is lost, else ""."""
        agent, cut = await self._core.store.read(
            lambda reader: (reader.agents.latest(session.id), reader.conversation_cuts.get(session.id))
        )
        if agent is not None and agent.state in {"starting", "live"}:
            return ""
        wanted = session.conversation_id if session.conversation_begun else cut.source_id if cut is not None else ""
        if session.conversation_lost or (wanted and await self.missing(session, wanted)):
            return gone(session)
        return ""

    async def missing(self, session: Session, conversation_id: str) -> bool:
        """Return whether a transcript is neither where the session's agent looks for it nor among
        the copies."""
        core, kind = self._core, self._core.kind(session.agent)
        before = await core.store.read(lambda reader: last_home(reader, session))
        home = kind.conversation_home(await environment_of(core, session, {}))

        def look() -> bool:
            places = (home, before or home, self._holder(session, conversation_id))
            return not any(kind.has_conversation(conversation_id, place) for place in places)

        return await asyncio.to_thread(look)

    async def forget(self, session_id: str) -> None:
        """Delete the copies of a removed session."""
        await asyncio.to_thread(shutil.rmtree, self._root / session_id, ignore_errors=True)


def gone(session: Session) -> str:
    """Return the warning about a session whose conversation is lost."""
    return (
        f"the agent's transcript of {session.name} is gone; its next turn begins a new conversation in the same worktree,"
        " with a summary of the old one"
    )


def last_home(reader: Reader, session: Session) -> Path | None:
    """Return where the last process stored the conversation."""
    agents: list[Agent] = reader.agents.list(session.id)
    return next((Path(each.conversation_home) for each in reversed(agents) if each.conversation_home), None)
