"""Copies of sessions' rows as files, from which a damaged database is rebuilt.

The daemon writes a JSON file for each session when the session is created, archived or restored,
and whenever its agent starts. It reads the files only after it has quarantined the database. It
then reads the agents' journals from their start for everything that happened later. The copy of an
archived session is complete, because its agent had ended.
"""

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import structlog

from rametd.domain.models import Agent, AgentState, Repo, Session
from rametd.domain.states import State
from rametd.keeper.executor import Handle
from rametd.platform.state import private_file
from rametd.store import RecoveredSession, dump_repo, dump_session, load_repo, load_session

log = structlog.get_logger()


class SessionIndex:
    """Files in one directory; calls block for a disk write."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def write(self, repo: Repo, session: Session) -> None:
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._path(session.id)
        scratch = path.with_suffix(".new")
        with open(scratch, "w", opener=private_file) as file:
            json.dump({"repo": dump_repo(repo), "session": dump_session(session)}, file)
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(path)

    def delete(self, session_id: str) -> None:
        path = self._path(session_id)
        for each in (path, path.with_suffix(".new")):  # a killed daemon may have left the second
            each.unlink(missing_ok=True)

    def _path(self, session_id: str) -> Path:
        return self._directory / f"{session_id}.json"

    def recover(self, handles: Sequence[tuple[str, int, Handle]]) -> Iterable[RecoveredSession]:
        """All sessions with a file. ``handles``: (session, generation, handle) of the keepers on
        disk."""
        newest: dict[str, tuple[int, Handle]] = {}
        for session_id, generation, handle in sorted(handles, key=lambda each: each[1]):
            newest[session_id] = (generation, handle)
        for path in sorted(self._directory.glob("*.json")):
            try:
                record = json.loads(path.read_text())
                repo, session = load_repo(record["repo"]), load_session(record["session"])
            except (ValueError, KeyError, TypeError) as error:
                log.error("copy of a session not readable", path=str(path), error=str(error))
                continue
            generation, handle = newest.get(session.id, (0, Handle("")))
            if handle and session.generation:
                generation = max(generation, 1)  # a warm agent is started before its session exists
            agent = agent_of(session, generation, handle) if generation else None
            yield RecoveredSession(repo, session, agent)


def agent_of(session: Session, generation: int, handle: Handle) -> Agent:
    """Row of an agent. The journal is read from its start, unless the session is archived."""
    return Agent(
        session_id=session.id,
        generation=generation,
        state=AgentState.EXITED if session.state == State.ARCHIVED else AgentState.LIVE,
        start_time=session.update_time,
        handle=handle,
        mode=session.mode,
        model=session.model,
    )
