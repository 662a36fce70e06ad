"""Notifications outside of Ramet's own screens: their topics, the ways to deliver them, and the
state of each delivery."""

from dataclasses import dataclass
from enum import StrEnum


class Topic(StrEnum):
    """What a notification is about, as in the setting ``notify.on``."""

    WAITING = "waiting"  # an agent, a landing or a login waits for an answer
    REVIEW = "review"  # a turn ended
    FAILED = "failed"
    LANDED = "landed"
    BUDGET = "budget"
    CONFLICT = "conflict"
    LIMIT = "limit"  # a usage limit pauses a session


class Way(StrEnum):
    """How a notification reaches the person."""

    DESKTOP = "desktop"
    NTFY = "ntfy"
    WEBHOOK = "webhook"
    COMMAND = "command"


@dataclass(frozen=True, slots=True)
class Notification:
    """One item that one way has yet to deliver. The row is deleted after delivery, or once the item
    no longer needs the person."""

    item: str  # "request:ID", "landing:ID" or "limit:SESSION"
    way: Way
    topic: Topic
    session_id: str
    due_time: float
    create_time: float
    message: str = ""  # id of the message that is being sent with it, "" before

    @property
    def subject(self) -> str:
        """Id of the request, landing or session."""
        return self.item.partition(":")[2]


@dataclass(frozen=True, slots=True)
class WayTrouble:
    """Failures in a row of one way. The row is deleted with the next success."""

    way: Way
    failures: int
    error: str
    retry_time: float
