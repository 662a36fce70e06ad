"""Review comments on the work of a session."""

from dataclasses import dataclass
from enum import StrEnum


class CommentState(StrEnum):
    OPEN = "open"  # not yet sent to the agent
    SENT = "sent"
    RESOLVED = "resolved"  # dealt with, or withdrawn


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment on the lines of a file from ``line`` (from 1) to ``end_line``, or on the whole file
    (both 0)."""

    id: str
    session_id: str
    path: str
    line: int
    end_line: int
    at: str  # the state that the lines are counted in, such as a checkpoint; "" for the file in the worktree
    text: str
    quote: str  # the lines around it, numbered, when it was written
    anchor: str  # text of the first line, to find it again after edits
    state: CommentState
    author: str  # a principal
    prompt_id: str  # the prompt that sent it to the agent
    create_time: float
    resolve_time: float | None
