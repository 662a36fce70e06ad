"""Review comments, open, sent and resolved."""

from typing import TypedDict, Unpack

from rametd.domain.comments import Comment, CommentState
from rametd.domain.errors import CommentNotFoundError
from rametd.store.rows import RowType, Table

COMMENTS = RowType(Comment, "comments")


class CommentColumns(TypedDict, total=False):
    """Columns that ``update`` may set."""

    state: CommentState
    prompt_id: str
    resolve_time: float


class CommentReads(Table):
    def get(self, comment_id: str) -> Comment:
        """Raises ``CommentNotFoundError``."""
        found = COMMENTS.find_one(self._db, "WHERE id = ?", comment_id)
        if found is None:
            raise CommentNotFoundError(
                f"there is no comment {comment_id!r}", hint="`rametctl comment SESSION` lists them"
            )
        return found

    def find_by_prefix(self, prefix: str) -> "list[Comment]":
        return COMMENTS.find_by_prefix(self._db, prefix)

    def list(self, session_id: str, *, resolved: bool = False) -> list[Comment]:
        """Comments of a session, oldest first; resolved ones only on request."""
        return COMMENTS.find_all(
            self._db,
            "WHERE session_id = ? AND (? OR state <> 'resolved') ORDER BY create_time, id",
            session_id,
            resolved,
        )


class Comments(CommentReads):
    def add(self, comment: Comment) -> Comment:
        COMMENTS.add(self._db, comment)
        return comment

    def update(self, comment_id: str, **columns: Unpack[CommentColumns]) -> Comment:
        """Raises ``CommentNotFoundError``."""
        statement, values = COMMENTS.update(dict(columns))
        self._db.execute(f"{statement} WHERE id = ?", (*values, comment_id))
        return self.get(comment_id)
