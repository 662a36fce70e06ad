"""Review comments on the work of a session."""

from dataclasses import dataclass
from enum import StrEnum


class CommentState(StrEnum):
    OPEN = "open"  # the agent has not got it
    SENT = "sent"
    RESOLVED = "resolved"  # dealt with, or withdrawn


@dataclass(frozen=True, slots=True)
class Comment:
    """On a line, from 1, or on a file as a whole: 0."""

    id: str
    session_id: str
    path: str
    line: int
    text: str
    quote: str  # the lines around, numbered, as they were
    anchor: str  # the line itself, by which it is found again
    state: CommentState
    author: str  # a principal
    prompt_id: str  # that carried it to the agent
    create_time: float
    resolve_time: float | None
