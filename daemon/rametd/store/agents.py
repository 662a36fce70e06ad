"""Agent processes, and the journal offsets up to which their lines are stored as events."""

import sqlite3
from collections.abc import Mapping
from typing import TypedDict, Unpack

from rametd.domain.errors import NotFoundError, StaleBatchError, WrongStateError
from rametd.domain.models import Agent, AgentState, BackgroundCommand
from rametd.store.rows import RowType, Table, json_text

AGENTS = RowType(Agent, "agents")
_ALIVE = "state IN ('starting', 'live')"


class AgentColumns(TypedDict, total=False):
    """Columns that ``update`` may set; ``advance`` and ``advance_stdin`` move the offsets."""

    state: AgentState
    handle: str
    initialize_reply: bytes
    hook_table: str
    cli_version: str
    end_time: float | None
    exit_status: str
    stop_intent: str
    mode: str
    model: str
    activity: str
    background: int
    background_commands: tuple[BackgroundCommand, ...]
    cost_base: float
    over_budget: str
    limit_until: float
    result: str
    api_error: str
    in_turn: bool
    conversation_home: str
    environment: str
    turn_offset: int
    interrupting: bool


class AgentReads(Table):
    def get(self, session_id: str, generation: int) -> Agent | None:
        return AGENTS.find_one(self._db, "WHERE session_id = ? AND generation = ?", session_id, generation)

    def latest(self, session_id: str) -> Agent | None:
        """The newest generation, alive or not."""
        return AGENTS.find_one(self._db, "WHERE session_id = ? ORDER BY generation DESC LIMIT 1", session_id)

    def has_handle(self, session_id: str, handle: str) -> bool:
        """Whether a process of the session, alive or not, has this handle."""
        found = self._db.execute("SELECT 1 FROM agents WHERE session_id = ? AND handle = ?", (session_id, handle))
        return found.fetchone() is not None

    def alive(self) -> list[Agent]:
        """Agents that are STARTING or LIVE, at most one per session."""
        return AGENTS.find_all(self._db, f"WHERE {_ALIVE} ORDER BY session_id")

    def list(self, session_id: str) -> list[Agent]:
        """Every generation, oldest first."""
        return AGENTS.find_all(self._db, "WHERE session_id = ? ORDER BY generation", session_id)


class Agents(AgentReads):
    def insert(self, agent: Agent) -> Agent:
        """Add a process. Raises ``WrongStateError`` while another process of the session is
        alive."""
        try:
            AGENTS.add(self._db, agent)
        except sqlite3.IntegrityError as error:
            if self._db.execute(f"{AGENTS.select} WHERE session_id = ? AND {_ALIVE}", (agent.session_id,)).fetchone():
                raise WrongStateError(
                    f"session {agent.session_id} already has a running agent", session=agent.session_id
                ) from error
            raise
        return agent

    def update(self, session_id: str, generation: int, **columns: Unpack[AgentColumns]) -> Agent:
        """Raises ``NotFoundError``."""
        statement, values = AGENTS.update(columns)
        self._db.execute(f"{statement} WHERE session_id = ? AND generation = ?", (*values, session_id, generation))
        agent = self.get(session_id, generation)
        if agent is None:
            raise NotFoundError(f"session {session_id} has no agent of generation {generation}", session=session_id)
        return agent

    def advance(self, session_id: str, generation: int, journal_offset: int, *, expect_offset: int) -> None:
        """Record that the journal before ``journal_offset`` is stored as events, in the same
        transaction as the events.

        This makes storing exactly-once: a batch that does not start at the end of the last one
        raises ``StaleBatchError``, which rolls back the whole work with its events. So a batch that
        is read twice (by a daemon that was replaced meanwhile, or over two connections to one
        keeper) counts once, and a batch that would leave a gap is refused.
        """
        self._advance("journal_offset", session_id, generation, journal_offset, expect_offset)

    def advance_all(self, batches: Mapping[str, tuple[int, int, int]]) -> None:
        """`advance` for many sessions: (generation, expected offset, new offset) of each batch.

        Raises ``StaleBatchError`` if any of them is stale. With OR FAIL, the work's transaction
        undoes the statement; otherwise SQLite copies each page that a statement of many rows
        changes.
        """
        moved = self._db.execute(
            "UPDATE OR FAIL agents SET journal_offset = batch.value ->> 2 FROM json_each(?) AS batch WHERE session_id = batch.key"
            " AND generation = batch.value ->> 0 AND journal_offset = batch.value ->> 1",
            (json_text(batches),),
        )
        if moved.rowcount != len(batches):
            raise StaleBatchError("a batch of several sessions does not follow on what is stored")

    def advance_stdin(self, session_id: str, generation: int, stdin_offset: int, *, expect_offset: int) -> None:
        """The same for the keeper's record of lines written to the agent."""
        self._advance("stdin_offset", session_id, generation, stdin_offset, expect_offset)

    def _advance(self, column: str, session_id: str, generation: int, offset: int, expect: int) -> None:
        if offset < expect:
            raise ValueError(f"a batch cannot end ({offset}) before it starts ({expect})")
        moved = self._db.execute(
            f"UPDATE agents SET {column} = ? WHERE session_id = ? AND generation = ? AND {column} = ?",  # noqa: S608 - two names
            (offset, session_id, generation, expect),
        )
        if moved.rowcount == 0:
            agent = self.get(session_id, generation)
            stored = "none" if agent is None else str(getattr(agent, column))
            raise StaleBatchError(
                f"the batch at {expect} of session {session_id}/{generation} does not follow on {stored}",
                session=session_id,
                stored=stored,
            )
