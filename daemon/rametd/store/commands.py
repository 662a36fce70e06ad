"""Commands in worktrees, running and ended."""

from collections.abc import Sequence
from typing import TypedDict, Unpack

from rametd.domain.commands import Command, CommandState
from rametd.domain.errors import CommandNotFoundError
from rametd.store.rows import RowType, Table

COMMANDS = RowType(Command, "commands")
_LIVING = "state IN ('starting', 'running')"


class CommandColumns(TypedDict, total=False):
    state: CommandState
    handle: str
    pid: int
    exit_status: str
    stop_reason: str
    reported_bytes: int
    output_bytes: int
    end_time: float | None


class CommandReads(Table):
    def find(self, command_id: str) -> Command | None:
        return COMMANDS.find_one(self._db, "WHERE id = ?", command_id)

    def get(self, command_id: str) -> Command:
        """Raises ``CommandNotFoundError``."""
        found = self.find(command_id)
        if found is None:
            raise CommandNotFoundError(
                f"there is no command {command_id!r}", hint="`rametctl run SESSION --list` shows them"
            )
        return found

    def find_by_prefix(self, prefix: str) -> Sequence[Command]:
        return COMMANDS.find_by_prefix(self._db, prefix)

    def living(self, session_id: str | None = None) -> Sequence[Command]:
        """Commands that are starting or running, of one session or of all, oldest first."""
        return COMMANDS.find_all(
            self._db, f"WHERE {_LIVING} AND (?1 IS NULL OR session_id = ?1) ORDER BY start_time, id", session_id
        )

    def list(
        self,
        session_id: str | None = None,
        *,
        include_ended: bool = True,
        before: tuple[float, str] | None = None,
        limit: int = -1,
    ) -> Sequence[Command]:
        """Commands of one session or of all, newest first. ``before``: (start_time, id) of the last
        one on the previous page."""
        time, last_id = before or (None, None)
        return COMMANDS.find_all(
            self._db,
            f"WHERE session_id <> '' AND (?1 IS NULL OR session_id = ?1) AND (?2 OR {_LIVING})"
            " AND (?3 IS NULL OR (start_time, id) < (?3, ?4)) ORDER BY start_time DESC, id DESC LIMIT ?5",
            session_id,
            include_ended,
            time,
            last_id,
            limit,
        )

    def find_check(self, session_id: str, check: str, tree: str) -> Command | None:
        """The newest command that checks, or has checked, these files, except stopped and lost
        ones."""
        found = COMMANDS.find_all(
            self._db,
            "WHERE session_id = ?1 AND kind = 'check' AND name = ?2 AND digest = ?3 AND state NOT IN ('stopped', 'lost')"
            " ORDER BY start_time DESC, id LIMIT 1",
            session_id,
            check,
            tree,
        )
        return found[0] if found else None

    def ids(self) -> frozenset[str]:
        return frozenset(command_id for (command_id,) in self._db.execute("SELECT id FROM commands"))


class Commands(CommandReads):
    def insert(self, command: Command) -> Command:
        COMMANDS.add(self._db, command)
        return command

    def update(self, command_id: str, **columns: Unpack[CommandColumns]) -> Command:
        """Raises ``CommandNotFoundError``."""
        statement, values = COMMANDS.update(columns)
        self._db.execute(f"{statement} WHERE id = ?", (*values, command_id))
        return self.get(command_id)

    def remove(self, command_id: str) -> None:
        """Delete the row, if it exists."""
        self._db.execute("DELETE FROM commands WHERE id = ?", (command_id,))

    def remove_sessionless(self) -> None:
        """Delete the commands that belong to no session."""
        self._db.execute("DELETE FROM commands WHERE session_id = ''")

    def remove_orphaned(self) -> None:
        """Delete the commands of sessions that no longer exist."""
        self._db.execute("DELETE FROM commands WHERE session_id <> '' AND session_id NOT IN (SELECT id FROM sessions)")

    def prune(self, session_id: str, keep: int) -> None:
        """Delete the ended commands of a session, except the newest ``keep``."""
        self._db.execute(
            f"DELETE FROM commands WHERE session_id = ?1 AND NOT {_LIVING} AND id NOT IN"  # noqa: S608 - a constant
            f" (SELECT id FROM commands WHERE session_id = ?1 AND NOT {_LIVING} ORDER BY end_time DESC, id LIMIT ?2)",
            (session_id, keep),
        )

    def record_setup_offer(self, repo_id: str) -> bool:
        """Record that a setup was suggested for a repository; False if that was recorded before."""
        added = self._db.execute("INSERT OR IGNORE INTO setup_offers (repo_id) VALUES (?)", (repo_id,))
        return added.rowcount == 1
