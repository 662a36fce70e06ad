"""Making events of the log."""

from typing import Any

from google.protobuf.message import Message
from ramet.v1 import event_pb2

from rametd.domain.models import DAEMON, NewEvent


def make(payload: Message, *, session_id: str = "", repo_id: str = "", principal: str = DAEMON) -> NewEvent:
    """An event with ``payload``, which is a message of one of the kinds in `ramet.v1.Event`."""
    kind = KINDS[payload.DESCRIPTOR.full_name]
    arguments: dict[str, Any] = {kind: payload}
    event = event_pb2.Event(session_id=session_id, repo_id=repo_id, principal=principal, **arguments)
    return NewEvent(kind, session_id, repo_id, principal, event.SerializeToString())


KINDS = {
    field.message_type.full_name: field.name
    for field in event_pb2.Event.DESCRIPTOR.oneofs_by_name["payload"].fields
    if field.message_type is not None
}

WHOLE = tuple(kind for kind in KINDS.values() if kind != "partial")
"""All kinds but pieces of messages."""

AUDITED = (
    "session_created",
    "session_updated",
    "session_removed",
    "prompt_queued",
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
"""Kinds that tell what principals did."""
