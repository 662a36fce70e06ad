"""Conflicts between pairs of sessions at the last comparison, and notices about them that agents
have not received yet. A pair without conflicts has no row."""

from rametd.domain.conflicts import Notice, PairConflict
from rametd.store.rows import RowType, Table

CONFLICTS = RowType(PairConflict, "conflicts")
NOTICES = RowType(Notice, "notices")


class ConflictReads(Table):
    def get(self, session_id: str, other_id: str) -> PairConflict | None:
        return CONFLICTS.find_one(self._db, "WHERE session_id = ? AND other_id = ?", session_id, other_id)

    def list(self, repo_id: str) -> list[PairConflict]:
        return CONFLICTS.find_all(self._db, "WHERE repo_id = ? ORDER BY session_id, other_id", repo_id)


class Conflicts(ConflictReads):
    def put(self, conflict: PairConflict) -> PairConflict:
        self.remove(conflict.session_id, conflict.other_id)
        CONFLICTS.add(self._db, conflict)
        return conflict

    def remove(self, session_id: str, other_id: str) -> None:
        self._db.execute("DELETE FROM conflicts WHERE session_id = ? AND other_id = ?", (session_id, other_id))


class NoticeReads(Table):
    def get(self, session_id: str) -> Notice | None:
        return NOTICES.find_one(self._db, "WHERE session_id = ?", session_id)

    def sessions(self) -> set[str]:
        """Ids of the sessions that have a notice."""
        return {each.session_id for each in NOTICES.find_all(self._db)}


class Notices(NoticeReads):
    def put(self, notice: Notice) -> None:
        self.take(notice.session_id)
        NOTICES.add(self._db, notice)

    def take(self, session_id: str) -> str:
        """Return the text for the agent, and delete the notice; "" if there is none."""
        notice = self.get(session_id)
        if notice is None:
            return ""
        self._db.execute("DELETE FROM notices WHERE session_id = ?", (session_id,))
        return notice.text
