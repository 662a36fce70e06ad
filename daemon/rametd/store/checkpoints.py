"""Checkpoints, and the starting points of conversations that continue a part of another one."""

from collections.abc import Sequence

from rametd.domain.checkpoints import Checkpoint, ConversationCut
from rametd.domain.models import Session
from rametd.store.rows import FOUND, RowType, Table

CHECKPOINTS = RowType(Checkpoint, "checkpoints")
CUTS = RowType(ConversationCut, "conversation_cuts")


class CheckpointReads(Table):
    def list(self, session_id: str, *, before: int | None = None, limit: int | None = None) -> Sequence[Checkpoint]:
        """Checkpoints of a session, newest first; only those with a number below ``before``."""
        return CHECKPOINTS.find_all(
            self._db,
            "WHERE session_id = ?1 AND (?2 IS NULL OR number < ?2) ORDER BY number DESC LIMIT ?3",
            session_id,
            before,
            -1 if limit is None else limit,
        )

    def latest(self, session_id: str) -> Checkpoint | None:
        return next(iter(self.list(session_id, limit=1)), None)

    def current(self, session: Session) -> Checkpoint | None:
        """The current checkpoint of a session: its newest, or the one that the last rewind
        restored. None before the first.

        Works for a session in the trash too.
        """
        row = self._db.execute("SELECT checkpoint FROM sessions WHERE id = ?", (session.id,)).fetchone()
        return self.by_number(session.id, row[0] if row is not None else session.checkpoint)

    def line(self, session_id: str, number: int) -> Sequence[int]:
        """Numbers of a checkpoint and its ancestors, newest first."""
        rows = self._db.execute(
            "WITH RECURSIVE line (number, parent) AS ("
            " SELECT number, parent FROM checkpoints WHERE session_id = ?1 AND number = ?2"
            " UNION SELECT c.number, c.parent FROM checkpoints c JOIN line ON c.session_id = ?1 AND c.number = line.parent)"
            " SELECT number FROM line",
            (session_id, number),
        )
        return [number for (number,) in rows]

    def by_number(self, session_id: str, number: int) -> Checkpoint | None:
        return CHECKPOINTS.find_one(self._db, "WHERE session_id = ? AND number = ?", session_id, number)

    def find_by_prefix(self, session_id: str, prefix: str) -> Sequence[Checkpoint]:
        """Checkpoints of a session whose id begins with ``prefix``."""
        return CHECKPOINTS.find_all(
            self._db,
            "WHERE session_id = ?1 AND id >= ?2 AND id < ?2 || char(0x10FFFF) ORDER BY id LIMIT ?3",
            session_id,
            prefix,
            FOUND,
        )

    def recall_due(self) -> bool:
        """Whether the database was rebuilt and its checkpoints are not restored yet."""
        return self._db.execute("SELECT 1 FROM meta WHERE key = 'recall'").fetchone() is not None


class Checkpoints(CheckpointReads):
    def note_recalled(self) -> None:
        """Record that the checkpoints are restored: `recall_due` is false from now on."""
        self._db.execute("DELETE FROM meta WHERE key = 'recall'")

    def add(self, checkpoint: Checkpoint) -> Checkpoint:
        CHECKPOINTS.add(self._db, checkpoint)
        return checkpoint

    def remove(self, checkpoint: Checkpoint) -> None:
        """Delete a checkpoint; its parent becomes the parent of its children."""
        row = self._db.execute("DELETE FROM checkpoints WHERE id = ? RETURNING parent", (checkpoint.id,)).fetchone()
        if row is None:
            return
        values = (row[0], checkpoint.session_id, checkpoint.number)
        self._db.execute("UPDATE checkpoints SET parent = ? WHERE session_id = ? AND parent = ?", values)
        self._db.execute("UPDATE sessions SET checkpoint = ? WHERE id = ? AND checkpoint = ?", values)

    def remove_all(self, session_id: str) -> None:
        self._db.execute("DELETE FROM checkpoints WHERE session_id = ?", (session_id,))
        self._db.execute("DELETE FROM conversation_cuts WHERE session_id = ?", (session_id,))


class CutReads(Table):
    def get(self, session_id: str) -> ConversationCut | None:
        return CUTS.find_one(self._db, "WHERE session_id = ?", session_id)


class Cuts(CutReads):
    def put(self, cut: ConversationCut) -> None:
        self.remove(cut.session_id)
        CUTS.add(self._db, cut)

    def remove(self, session_id: str) -> None:
        self._db.execute("DELETE FROM conversation_cuts WHERE session_id = ?", (session_id,))
