"""Sessions. The table of transitions checks every change of state, which can be compare-and-set."""

# ruff: noqa: S608 - statements are built from constants

import sqlite3
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict, Unpack

from rametd.domain.errors import BranchTakenError, ChangedError, NameTakenError, RametError, SessionNotFoundError
from rametd.domain.models import Hold, Mode, Session, SetupState, Tokens, WorktreeKind
from rametd.domain.states import SLOT_STATES, State, check_transition
from rametd.store.rows import FOUND, RowType, Table, Value, json_text, marks

SESSIONS = RowType(Session, "sessions", remembered=2048)
"""Table of sessions with a cache: most sessions have not changed since the last read, and a row has
sixty columns to convert."""


class SessionColumns(TypedDict, total=False):
    """Columns that ``update`` and ``transition`` may set besides the state."""

    name: str
    branch: str
    base_ref: str
    base_commit: str
    start_commit: str
    worktree: Path
    model: str
    effort: str
    mode: Mode
    conversation_id: str
    conversation_begun: bool
    created_branch: bool
    worktree_ready: bool
    interrupted: bool
    turns: int
    turn_seconds: float
    cost_usd: float | None
    tokens: Tokens
    budget_usd: float | None
    budget_tokens: int | None
    priority: int
    owns: tuple[str, ...]
    forbids: tuple[str, ...]
    after: tuple[str, ...]
    resumes: int
    generation: int
    root_id: str
    notify_parent: bool
    result: str
    resume_at: float | None
    limit_resumes: int
    upstream_tries: int
    budget_warned: bool
    setup: SetupState
    setup_digest: str
    port_base: int
    port_count: int
    plan_id: str
    thread: str
    landed_reason: str
    checkpointed_turns: int
    checkpoint: int
    last_message_id: str
    turn_summary: str
    doing: str
    setup_reason: str
    archive_commit: str
    before_archive: tuple[str, ...]
    conversation_lost: bool
    environment: str
    worktree_kind: WorktreeKind


@dataclass(frozen=True, slots=True)
class SessionStamp:
    """Version of a session's row, to detect changes: ``version`` and ``last_seq`` only grow."""

    id: str
    repo_id: str
    version: int
    last_seq: int
    create_time: float


class SessionReads(Table):
    def get(self, session_id: str) -> Session:
        """Raises ``SessionNotFoundError``."""
        found = self.find(session_id)
        if found is None:
            raise SessionNotFoundError(
                f"there is no session {session_id!r}", hint="`rametctl ls --all` shows them", session=session_id
            )
        return found

    def find(self, session_id: str) -> Session | None:
        return SESSIONS.find_one(self._db, "WHERE id = ?", session_id)

    def find_by_prefix(self, prefix: str) -> list[Session]:
        return SESSIONS.find_by_prefix(self._db, prefix)

    def knows_id(self, identity: str) -> bool:
        """Whether this Ramet has assigned the id to a session or worktree, existing or not."""
        return self._db.execute("SELECT 1 FROM given_ids WHERE id = ?", (identity,)).fetchone() is not None

    def branches(self, repo_id: str) -> set[str]:
        """Branches of all sessions. Archived ones count: ``restore`` may create their branches
        again."""
        return {branch for (branch,) in self._db.execute("SELECT branch FROM sessions WHERE repo_id = ?", (repo_id,))}

    def by_name(self, name: str, repo_id: str | None = None) -> list[Session]:
        """Sessions of that name: at most one per repository."""
        return SESSIONS.find_all(
            self._db, "WHERE name = ?1 AND (?2 IS NULL OR repo_id = ?2) ORDER BY create_time", name, repo_id
        )

    def by_name_prefix(self, prefix: str) -> list[Session]:
        """Sessions whose name begins with ``prefix``, archived ones included."""
        return SESSIONS.find_all(
            self._db,
            "WHERE name >= ?1 AND name < ?1 || char(0x10FFFF) ORDER BY name, create_time LIMIT ?2",
            prefix,
            FOUND,
        )

    def family(self, root_id: str) -> list[Session]:
        """A session and all its descendants, archived ones included, oldest first."""
        return SESSIONS.find_all(self._db, "WHERE root_id = ? ORDER BY create_time, id", root_id)

    def port_blocks(self) -> "list[tuple[int, int]]":
        """(first port, count) of every session that has ports, archived ones included,
        ascending."""
        return self._db.execute(
            "SELECT port_base, port_count FROM sessions WHERE port_count > 0 ORDER BY port_base"
        ).fetchall()

    def counts(self) -> dict[State, int]:
        """Number of sessions in each state, zeros included."""
        counts = dict.fromkeys(State, 0)
        for state, count in self._db.execute("SELECT state, count(*) FROM sessions GROUP BY state"):
            counts[State(state)] = count
        return counts

    def counts_by_repo(self, states: Collection[State]) -> dict[str, int]:
        """Number of sessions in these states in each repository that has some."""
        found = self._db.execute(
            f"SELECT repo_id, count(*) FROM sessions WHERE state IN ({marks(len(states))}) GROUP BY repo_id",
            [str(state) for state in states],
        )
        return dict(found.fetchall())

    def count_elsewhere(self, repo_id: str) -> int:
        """Number of sessions of other repositories, without ARCHIVED ones."""
        (count,) = self._db.execute(
            "SELECT count(*) FROM sessions WHERE repo_id <> ? AND state <> ?", (repo_id, str(State.ARCHIVED))
        ).fetchone()
        return int(count)

    def queued(self, limit: int | None = None) -> list[Session]:
        """QUEUED sessions in starting order: by priority, then fairly by repository (including its
        working sessions), then by age.

        The caller checks ``after``. With a limit, sessions that still wait for others could hide
        startable ones.
        """
        slots = [str(state) for state in SLOT_STATES]
        return SESSIONS.read_all(
            self._db.execute(
                f"WITH at_work AS (SELECT repo_id, count(*) AS n FROM sessions WHERE state IN ({marks(len(slots))}) GROUP BY repo_id)"
                f" {SESSIONS.select} LEFT JOIN at_work USING (repo_id) WHERE state = ?"
                " ORDER BY priority DESC,"
                " ifnull(n, 0) + row_number() OVER (PARTITION BY repo_id, priority ORDER BY create_time, id),"
                " create_time, id LIMIT ?",
                (*slots, str(State.QUEUED), -1 if limit is None else limit),
            )
        )

    def list(
        self,
        *,
        states: Collection[State] = (),
        repo_id: str | None = None,
        parent_id: str | None = None,
        include_archived: bool = False,
        after: tuple[float, str] | None = None,
        limit: int | None = None,
    ) -> list[Session]:
        """Sessions, oldest first. ``after``: (create_time, id) of the last one on the previous
        page.

        Empty ``states`` means all, ARCHIVED only with ``include_archived``; a state that is listed
        is always included.
        """
        return SESSIONS.read_all(
            self._page(SESSIONS.select, states, repo_id, parent_id, include_archived, after, limit)
        )

    def with_mode(self, mode: Mode) -> Sequence[Session]:
        """All sessions in a permission mode, archived ones included."""
        return self._all("mode = ?", str(mode))

    def checkpoint_due(self) -> Sequence[Session]:
        """The sessions whose last turn has no checkpoint yet."""
        return self._all("turns > checkpointed_turns AND state <> ?", str(State.ARCHIVED))

    def setup_due(self) -> Sequence[Session]:
        """The sessions whose setup runs, or that have had no agent yet."""
        return self._all("(setup = 'running' OR generation = 0) AND state <> ?", str(State.ARCHIVED))

    def _all(self, condition: str, *values: Value) -> Sequence[Session]:
        return SESSIONS.find_all(self._db, f"WHERE {condition} ORDER BY create_time, id", *values)

    def owning(self, repo_id: str) -> Sequence[Session]:
        """Sessions of a repository that own paths, without ARCHIVED ones, oldest first. Runs at
        every edit and end of a turn."""
        return SESSIONS.find_all(
            self._db,
            "WHERE repo_id = ? AND owns <> '[]' AND state <> ? ORDER BY create_time, id",
            repo_id,
            str(State.ARCHIVED),
        )

    def stamps(
        self,
        *,
        states: Collection[State] = (),
        repo_id: str | None = None,
        include_archived: bool = False,
        after: tuple[float, str] | None = None,
        limit: int | None = None,
    ) -> Sequence[SessionStamp]:
        """As ``list``, but only the stamps: a cache then reads the changed rows again."""
        columns = "SELECT id, repo_id, version, last_seq, create_time FROM sessions"
        return [
            SessionStamp(*row) for row in self._page(columns, states, repo_id, None, include_archived, after, limit)
        ]

    def get_many(self, session_ids: Sequence[str]) -> Sequence[Session]:
        """Those of the given sessions that exist, in no order."""
        return SESSIONS.find_all(self._db, "WHERE id IN (SELECT value FROM json_each(?))", json_text([*session_ids]))

    def _page(
        self,
        columns: str,
        states: Collection[State],
        repo_id: str | None,
        parent_id: str | None,
        include_archived: bool,
        after: tuple[float, str] | None,
        limit: int | None,
    ) -> sqlite3.Cursor:
        time, last_id = after or (None, None)
        names = [str(state) for state in states] or [
            str(each) for each in State if include_archived or each != State.ARCHIVED
        ]
        return self._db.execute(
            f"{columns} WHERE state IN ({marks(len(names))})"
            " AND (? IS NULL OR repo_id = ?) AND (? IS NULL OR parent_id = ?)"
            " AND (? IS NULL OR (create_time, id) > (?, ?)) ORDER BY create_time, id LIMIT ?",
            (*names, repo_id, repo_id, parent_id, parent_id, time, time, last_id, -1 if limit is None else limit),
        )


class Sessions(SessionReads):
    def insert(self, session: Session) -> Session:
        """Store a session. Raises ``NameTakenError`` or ``BranchTakenError``."""
        self.record_id(session.id)
        try:
            SESSIONS.add(self._db, session)
        except sqlite3.IntegrityError as error:
            raise _taken(error, session) from error
        return session

    def update(
        self, session_id: str, *, expect_version: int | None = None, **columns: Unpack[SessionColumns]
    ) -> Session:
        """Raises ``SessionNotFoundError``, ``ChangedError`` (another version), ``NameTakenError``,
        ``BranchTakenError``."""
        if expect_version is not None and (session := self.get(session_id)).version != expect_version:
            raise ChangedError(f"session {session.name} has changed", hint="look at it again", session=session_id)
        return self._write(session_id, dict(columns))

    def transition(
        self,
        session_id: str,
        to: State,
        *,
        reason: str = "",
        hold: Hold = Hold.NONE,
        expect: Collection[State] | None = None,
        **columns: Unpack[SessionColumns],
    ) -> Session:
        """Set state, reason, hold and ``columns``; return the session. The same state again is
        allowed.

        Raises ``SessionNotFoundError``; ``ChangedError`` if the state is not in ``expect``;
        ``WrongStateError`` if the table of transitions forbids it; ``BranchTakenError`` if a
        restored session's branch is in use.
        """
        session = self.get(session_id)
        if expect is not None and session.state not in expect:
            raise ChangedError(
                f"session {session.name} is {session.state} now",
                hint="look at it again",
                session=session_id,
                state=session.state,
            )
        if session.state != to:
            check_transition(session.state, to)
        entered = {} if session.state == to else {"state_time": self._scope.now}
        return self._write(session_id, {**columns, **entered, "state": to, "state_reason": reason, "hold": hold})

    def record_id(self, identity: str) -> None:
        """Record that this Ramet has assigned an id; the record outlives the session."""
        self._db.execute("INSERT OR IGNORE INTO given_ids (id) VALUES (?)", (identity,))

    def delete(self, session_id: str) -> None:
        """Delete a session with its agents, prompts and requests; its events and ledger stay."""
        self._db.execute("DELETE FROM sessions WHERE id = ?", (session_id,))

    def _write(self, session_id: str, changes: dict[str, object]) -> Session:
        statement, values = SESSIONS.update({**changes, "update_time": self._scope.now})
        try:
            found = self._db.execute(
                f"{statement}, version = version + 1 WHERE id = ? RETURNING {SESSIONS.columns}", (*values, session_id)
            ).fetchall()
        except sqlite3.IntegrityError as error:
            raise _taken(error, self.get(session_id)) from error
        return SESSIONS.read(found[0]) if found else self.get(session_id)


def _taken(error: sqlite3.IntegrityError, session: Session) -> RametError | sqlite3.IntegrityError:
    """Translate a violated unique index. SQLite names its columns, in a format that is stable since
    3.8."""
    words = str(error)
    if "sessions.name" in words:
        return NameTakenError(
            f"another session is named {session.name!r}", hint="choose another name", session=session.id
        )
    if "sessions.branch" in words:
        return BranchTakenError(
            f"another session has the branch {session.branch!r}", hint="choose another branch", session=session.id
        )
    return error
