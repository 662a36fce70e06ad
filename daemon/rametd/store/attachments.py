"""Processes of the person that have a session's conversation open: one row for each session that
ever had one."""

from rametd.domain.models import Attachment
from rametd.store.rows import RowType, Table

ATTACHMENTS = RowType(Attachment, "attachments")


class AttachmentReads(Table):
    def get(self, session_id: str) -> Attachment:
        """The row of a session; without one, the values for a session that never had such a
        process."""
        found = ATTACHMENTS.find_one(self._db, "WHERE session_id = ?", session_id)
        return found or Attachment(session_id)

    def living(self) -> list[Attachment]:
        """Return rows whose process may still run."""
        return ATTACHMENTS.find_all(self._db, "WHERE pid > 0 ORDER BY session_id")


class Attachments(AttachmentReads):
    def put(self, attachment: Attachment) -> Attachment:
        self._db.execute(ATTACHMENTS.insert.replace("INSERT", "REPLACE", 1), ATTACHMENTS.values(attachment))
        return attachment
