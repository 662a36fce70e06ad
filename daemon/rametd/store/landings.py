"""The merge queues: one row per entry, open or ended."""

from typing import TypedDict, Unpack

from rametd.domain.errors import LandingNotFoundError
from rametd.domain.landing import Landing, LandingState
from rametd.store.rows import RowType, Table

LANDINGS = RowType(Landing, "landings", columns={"commit": "commit_id", "after": "after_sessions"})
ENDED = "state IN ('landed', 'removed')"
IN_ORDER = "ORDER BY repo_id, target, merge_order, position"


class LandingColumns(TypedDict, total=False):
    """Columns that ``update`` may set."""

    state: LandingState
    reason: str
    method: str
    checks: tuple[str, ...]
    returns: int
    commit: str
    old_target: str
    new_target: str
    check_command_id: str
    batch: tuple[str, ...]


class LandingReads(Table):
    def find(self, landing_id: str) -> Landing | None:
        return LANDINGS.find_one(self._db, "WHERE id = ?", landing_id)

    def get(self, landing_id: str) -> Landing:
        """Raises ``LandingNotFoundError``."""
        found = self.find(landing_id)
        if found is None:
            raise LandingNotFoundError(f"there is no landing {landing_id!r}", hint="`rametctl queue` shows them")
        return found

    def find_by_prefix(self, prefix: str) -> list[Landing]:
        """Entries whose id begins with ``prefix``, open ones first."""
        return LANDINGS.find_by_prefix(self._db, prefix, first=ENDED)

    def open(self, repo_id: str | None = None, target: str | None = None) -> list[Landing]:
        """Open entries by queue, each queue in landing order."""
        return LANDINGS.find_all(
            self._db,
            f"WHERE NOT {ENDED} AND (?1 IS NULL OR repo_id = ?1) AND (?2 IS NULL OR target = ?2) {IN_ORDER}",
            repo_id,
            target,
        )

    def ended(self, repo_id: str | None = None) -> list[Landing]:
        """Ended entries, newest first."""
        return LANDINGS.find_all(
            self._db,
            f"WHERE {ENDED} AND (?1 IS NULL OR repo_id = ?1) ORDER BY update_time DESC, position DESC",
            repo_id,
        )

    def of_session(self, session_id: str) -> Landing | None:
        """The open entry of a session, or else its newest."""
        return LANDINGS.find_one(self._db, f"WHERE session_id = ? ORDER BY {ENDED}, position DESC LIMIT 1", session_id)


class Landings(LandingReads):
    def add(self, landing: Landing) -> Landing:
        """Append an entry; its ``position`` is assigned here."""
        (last,) = self._db.execute("SELECT coalesce(max(position), 0) FROM landings").fetchone()
        LANDINGS.add(self._db, landing)
        self._db.execute("UPDATE landings SET position = ? WHERE id = ?", (last + 1, landing.id))
        return self.get(landing.id)

    def update(self, landing_id: str, **columns: Unpack[LandingColumns]) -> Landing:
        """Raises ``LandingNotFoundError``."""
        statement, values = LANDINGS.update({**columns, "update_time": self._scope.now})
        self._db.execute(f"{statement} WHERE id = ?", (*values, landing_id))
        return self.get(landing_id)
