"""The services of the contract, as descriptors."""

from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from ramet.v1 import (
    attention_pb2,
    daemon_pb2,
    event_pb2,
    landing_pb2,
    orchestration_pb2,
    plan_pb2,
    repo_pb2,
    session_pb2,
    terminal_pb2,
    worktree_pb2,
)

SERVICES = tuple(
    service
    for module in (
        daemon_pb2,
        repo_pb2,
        session_pb2,
        event_pb2,
        attention_pb2,
        worktree_pb2,
        terminal_pb2,
        orchestration_pb2,
        plan_pb2,
        landing_pb2,
    )
    for service in module.DESCRIPTOR.services_by_name.values()
)

_METHODS = {method.input_type.full_name: method for service in SERVICES for method in service.methods}
"""Methods by the full name of their request type; each has its own."""


def method_of(request: Message) -> tuple[str, type[Message]]:
    """Return the name of a request's method, and the type of its answers."""
    method = _METHODS[request.DESCRIPTOR.full_name]
    return method.name, GetMessageClass(method.output_type)
