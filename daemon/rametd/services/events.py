"""Events of the log."""

from typing import Any

from google.protobuf.message import Message
from ramet.v1 import event_pb2

from rametd.domain.models import DAEMON, NewEvent, Session
from rametd.store import Unit


def make(payload: Message, *, session_id: str = "", repo_id: str = "", principal: str = DAEMON) -> NewEvent:
    """Create an event. ``payload`` is a message of one of the kinds in `ramet.v1.Event`."""
    kind = KINDS[payload.DESCRIPTOR.full_name]
    arguments: dict[str, Any] = {kind: payload}
    event = event_pb2.Event(session_id=session_id, repo_id=repo_id, principal=principal, **arguments)
    return NewEvent(kind, session_id, repo_id, principal, event.SerializeToString())


def log(unit: Unit, session: Session, payload: Message, principal: str = DAEMON) -> None:
    """Append an event of a session to the log."""
    unit.events.append(make(payload, session_id=session.id, repo_id=session.repo_id, principal=principal))


def warn(unit: Unit, session: Session, words: str) -> None:
    """Append a warning about a session to the log."""
    log(unit, session, event_pb2.Warning(message=words))


KINDS = {
    field.message_type.full_name: field.name
    for field in event_pb2.Event.DESCRIPTOR.oneofs_by_name["payload"].fields
    if field.message_type is not None
}

WITHOUT_PARTIALS = tuple(kind for kind in KINDS.values() if kind != "partial")
"""All kinds of events but pieces of messages."""

HIDDEN = frozenset({"partial", "control_line", "agent_notice", "agent_noise", "command_output", "prompt_sent"})
"""Kinds that change no field of a session but the number of its newest event."""

DETAIL = HIDDEN | {"assistant_message", "user_message"}
"""Kinds that only a reader of the conversation needs. Events of all other kinds are few."""

AUDITED = (
    "session_created",
    "session_updated",
    "session_removed",
    "prompt_queued",
    "prompt_withdrawn",
    "request_closed",
    "repo_changed",
    "repo_removed",
    "plan_applied",
    "plan_removed",
    "pull_request_changed",
    "call_denied",
    "daemon_started",
    "daemon_stopped",
    "store_rebuilt",
)
"""Kinds that record an action of a principal."""
