"""Review comments on the work of a session."""

from dataclasses import dataclass
from enum import StrEnum


class CommentState(StrEnum):
    OPEN = "open"  # not yet sent to the agent
    SENT = "sent"
    RESOLVED = "resolved"  # dealt with, or withdrawn


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment on a line of a file (from 1), or on the whole file (line 0)."""

    id: str
    session_id: str
    path: str
    line: int
    text: str
    quote: str  # the lines around it, numbered, when it was written
    anchor: str  # text of the line, to find it again after edits
    state: CommentState
    author: str  # a principal
    prompt_id: str  # the prompt that sent it to the agent
    create_time: float
    resolve_time: float | None
